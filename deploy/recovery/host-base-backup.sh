#!/bin/sh
# Copies the files of a running PostgreSQL server, as the start of every recovery by host.sh. Run it by a timer, on the
# machine of the server, as the login that owns its files: host-base-backup.sh SERVER
# The server archives its write-ahead log with host-archive.sh.
#   RECOVERY_DIR    folder for base backups and the archived log, on another disk than that of the server
#   RECOVERY_KEEP   number of base backups that stay (2); the log since the oldest of them stays, too
#   PGHOST, PGPORT, PGUSER, PGPASSFILE   login of a superuser, as psql takes it
set -eu
umask 077
folder=${RECOVERY_DIR:?}/${1:?name of the server}
export run="$folder/base/unfinished"
export data="$(psql -XqAt -d postgres -c 'show data_directory')"
[ -z "$(ls "$data/pg_tblspc")" ] || { echo 'The server has tablespaces, which this script does not copy.' >&2; exit 1; }
mkdir -p "$folder/wal"
rm -rf "$run"
mkdir -p "$run"

# One session starts and ends the copy. pg_backup_stop waits until the log that the copy needs is in the archive.
psql -XqAt -v ON_ERROR_STOP=1 -d postgres <<'SQL'
select pg_backup_start('base backup', fast => true) \g /dev/null
\! tar -cf "$run/files.tar" -C "$data" --exclude='./pg_wal/*' --exclude='./pg_replslot/*' --exclude='./pg_stat_tmp/*' --exclude='./pg_subtrans/*' --exclude='./postmaster.*' --exclude='./*.password' --exclude='pgsql_tmp*' . 2> "$run/log"; [ $? -le 1 ] && touch "$run/copied"
\o | cat > "$run/backup_label"
select labelfile from pg_backup_stop();
\o | cat > "$run/time"
select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');
SQL
[ -f "$run/copied" ] || { cat "$run/log" >&2; exit 1; } # 1 is the code of tar when a file has changed meanwhile
mv "$run" "$folder/base/$(cat "$run/time")"

ls "$folder/base" | head -n "-${RECOVERY_KEEP:-2}" | while read -r old; do rm -rf "$folder/base/$old"; done
first=$(sed -n 's/^START WAL.*file \([0-9A-F]*\).*/\1/p' "$folder/base/$(ls "$folder/base" | head -n 1)/backup_label")
find "$folder/wal" -type f -name '[0-9A-F]*' ! -name '*.history' | while read -r segment; do
  if expr "$(basename "$segment")" '<' "$first" > /dev/null; then rm "$segment"; fi
done
