#!/bin/sh
# For deploy/compose.yaml, beside a PostgreSQL server: makes a base backup with host-base-backup.sh when the newest one
# is a day old. A new volume belongs to root: first, this gives it to the login of the server.
# RECOVERY_SERVER is the name of the server; POSTGRES_USER and POSTGRES_PASSWORD_FILE are those of its container.
set -eu
chown postgres:postgres "$RECOVERY_DIR"
PGUSER=$POSTGRES_USER PGPASSWORD=$(cat "$POSTGRES_PASSWORD_FILE")
export PGUSER PGPASSWORD
while :; do
  recent=$(find "$RECOVERY_DIR/$RECOVERY_SERVER/base" -maxdepth 1 -name '2*' -mtime -1 2> /dev/null || true)
  [ -n "$recent" ] || gosu postgres "$(dirname "$0")/host-base-backup.sh" "$RECOVERY_SERVER" || true # tries again
  sleep 600
done
