#!/bin/sh
# RECOVERY_COMMAND for a PostgreSQL server on a host of one's own: recovers a base backup of host-base-backup.sh and the
# archived write-ahead log.
#   host.sh SERVER DATABASE TIME   prints the URL of the recovered server, which ends when the standard input closes
#   host.sh --list SERVER          prints the first and the last moment that can be had
# RECOVERY_DIR is that of host-base-backup.sh; scratch-server.sh has the other settings.
. "$(dirname "$0")/scratch-server.sh"
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
digits() { printf 't%s' "$1" | tr -dc t0-9 | cut -c 1-21; } # to the microsecond
base=
for each in $(ls "$folder/base" | grep -v unfinished); do
  if expr "$(digits "$each")" '<=' "$(digits "$3")" > /dev/null; then base=$each; fi
done
[ -n "$base" ] || refuse "The oldest base backup of $1 is of $first: choose a later moment."

make_scratch
tar -xf "$folder/base/$base/files.tar" -C "$scratch/data" 3<&-
cp "$folder/base/$base/backup_label" "$scratch/data/"
touch "$scratch/data/recovery.signal"
rm -rf "$scratch/data/pg_wal" "$scratch/data/postgresql.auto.conf" # a link to that of the server; its settings
mkdir "$scratch/data/pg_wal"
cat > "$scratch/data/postgresql.conf" << END
restore_command = 'cp "$folder/wal/%f" "%p" 2> /dev/null'
recovery_target_time = '$3'
recovery_target_action = promote
END
serve_scratch
