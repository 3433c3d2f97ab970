#!/bin/sh
# RECOVERY_COMMAND for a PostgreSQL server on a host of one's own: recovers a base backup of host-base-backup.sh and the
# archived write-ahead log on a scratch server, which listens on a socket in a private folder only.
#   host.sh SERVER DATABASE TIME   prints the URL of the recovered server, which ends when the standard input closes
#   host.sh --list SERVER          prints the first and the last moment that can be had
# Settings:
#   RECOVERY_DIR      the folder of host-base-backup.sh
#   RECOVERY_SCRATCH  folder with room for all files of the server (/tmp)
#   RECOVERY_PG_CTL   pg_ctl of the same major version as the server (pg_ctl); it refuses to run as root
#   RECOVERY_USER     name of the superuser of the server (postgres)
set -eu
umask 077
refuse() { echo "$1"; exit 1; }
[ "$1" != --list ] || shift
folder=${RECOVERY_DIR:?}/$1
first=$(ls "$folder/base" 2> /dev/null | grep -v unfinished | head -n 1)
[ -n "$first" ] || refuse "There is no base backup of $1 in $folder: run host-base-backup.sh $1."
if [ $# = 1 ]; then
  newest=$(ls -t "$folder/wal" | head -n 1)
  echo "$first $(date -u -r "$folder/wal/$newest" +%Y-%m-%dT%H:%M:%SZ)"
  exit
fi

case $3 in *[!0-9:.+\ -]*) refuse "$3 is no time." ;; esac
seconds() { printf %s "$1" | tr -dc 0-9 | cut -c 1-14; }
base=
for each in $(ls "$folder/base" | grep -v unfinished); do
  if [ "$(seconds "$each")" -le "$(seconds "$3")" ]; then base=$each; fi
done
[ -n "$base" ] || refuse "The oldest base backup of $1 is of $first: choose a later moment."

pg_ctl=${RECOVERY_PG_CTL:-pg_ctl}
scratch=$(mktemp -d "${RECOVERY_SCRATCH:-/tmp}/recovery-XXXXXX")
exec 3<&0
{ # Cleans up when the standard input closes, also if this script was killed.
  cat <&3 > /dev/null || true
  until "$pg_ctl" -D "$scratch/data" -m immediate stop > /dev/null 2>&1; rm -rf "$scratch" 2> /dev/null; do sleep 1; done
} &

mkdir "$scratch/data"
tar -xf "$folder/base/$base/files.tar" -C "$scratch/data" 3<&-
cp "$folder/base/$base/backup_label" "$scratch/data/"
touch "$scratch/data/recovery.signal"
rm -f "$scratch/data/postgresql.auto.conf" # would let it archive into the folder of the server
rm -rf "$scratch/data/pg_wal" && mkdir "$scratch/data/pg_wal" # may be a link to that of the server
echo 'local all all trust' > "$scratch/data/pg_hba.conf" # no other login can open the folder of the socket
cat > "$scratch/data/postgresql.conf" << END
restore_command = 'cp "$folder/wal/%f" "%p" 2> /dev/null'
recovery_target_time = '$3'
recovery_target_action = promote
hot_standby = off
archive_mode = off
listen_addresses = ''
unix_socket_directories = '$scratch'
unix_socket_permissions = 0700
max_prepared_transactions = 64
autovacuum = off
fsync = off
END
"$pg_ctl" -D "$scratch/data" -l "$scratch/log" start > /dev/null 3<&- || true
until grep -qs '^ready' "$scratch/data/postmaster.pid"; do # it says so at the end of the recovery
  if [ ! -f "$scratch/data/postmaster.pid" ]; then
    if grep -q 'recovery ended before configured recovery target' "$scratch/log"; then
      refuse "The archived write-ahead log of $1 ends before $3: choose an earlier moment."
    fi
    refuse "Base backup $base of $1 could not be recovered: $(grep -E 'FATAL|PANIC' "$scratch/log" | tail -n 1)"
  fi
  sleep 0.1
done
echo "postgresql:///postgres?host=$scratch&user=${RECOVERY_USER:-postgres}"
wait
