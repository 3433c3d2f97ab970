#!/bin/sh
# archive_command of a PostgreSQL server, for recoveries by host.sh: host-archive.sh SERVER "%p" "%f"
# RECOVERY_DIR is that of host-base-backup.sh, which makes the folders. A file that is there is never replaced; the same
# file again is a success, because the server repeats one after a crash.
set -eu
umask 077
wal=${RECOVERY_DIR:?}/$1/wal
if [ -f "$wal/$3" ]; then exec cmp "$2" "$wal/$3"; fi
cp "$2" "$wal/.$3"
sync "$wal/.$3" # the server removes its own copy next
mv "$wal/.$3" "$wal/$3"
