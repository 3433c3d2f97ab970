# Functions of host.sh and pgbackrest.sh: a PostgreSQL server on recovered files, which listens on a socket in a private
# folder, and is gone when the standard input closes.
#   RECOVERY_SCRATCH  folder with room for all files of the server (/tmp)
#   RECOVERY_PG_CTL   pg_ctl of the same major version as the server (pg_ctl); it refuses to run as root
#   RECOVERY_USER     name of the superuser of the server (postgres)
#   RECOVERY_LISTEN   addresses on which it also listens, with TLS and the passwords of the server (none)
#   RECOVERY_TLS_CERTIFICATE, RECOVERY_TLS_KEY   files, needed with RECOVERY_LISTEN
set -eu
umask 077
pg_ctl=${RECOVERY_PG_CTL:-pg_ctl}
refuse() { echo "$1"; exit 1; }

# Makes the folder $scratch, with the empty data directory $scratch/data.
make_scratch() {
  scratch=$(mktemp -d "${RECOVERY_SCRATCH:-/tmp}/recovery-XXXXXX")
  exec 3<&0
  { # Cleans up when the standard input closes, also if this script was killed.
    cat <&3 > /dev/null || true
    until "$pg_ctl" -D "$scratch/data" -m immediate stop > /dev/null 2>&1; rm -rf "$scratch" 2> /dev/null; do sleep 1; done
  } &
  mkdir "$scratch/data"
}

# Starts the server on $scratch/data, prints its URL when it has recovered, and waits.
serve_scratch() {
  touch "$scratch/data/postgresql.conf" "$scratch/data/pg_ident.conf"
  echo 'local all all trust' > "$scratch/data/pg_hba.conf" # no other login can open the folder of the socket
  tls='-c ssl=off'
  if [ -n "${RECOVERY_LISTEN:-}" ]; then
    echo 'hostssl all all all scram-sha-256' >> "$scratch/data/pg_hba.conf"
    tls="-c ssl=on -c ssl_cert_file=$RECOVERY_TLS_CERTIFICATE -c ssl_key_file=$RECOVERY_TLS_KEY"
  fi
  off='-c archive_mode=off -c hot_standby=off -c autovacuum=off -c fsync=off -c shared_preload_libraries='
  "$pg_ctl" -D "$scratch/data" -l "$scratch/log" -o "$off $tls -c listen_addresses=${RECOVERY_LISTEN:-} \
    -c unix_socket_directories=$scratch -c unix_socket_permissions=0700 -c max_prepared_transactions=64" \
    start > /dev/null 3<&- || true
  until grep -qs '^ready' "$scratch/data/postmaster.pid"; do # it says so at the end of the recovery
    if [ ! -f "$scratch/data/postmaster.pid" ]; then
      if grep -qs 'recovery ended before configured recovery target' "$scratch/log"; then
        refuse "The archived write-ahead log ends before that moment: choose an earlier one."
      fi
      refuse "The files could not be recovered: $(grep -sE 'FATAL|PANIC' "$scratch/log" | tail -n 1)"
    fi
    sleep 0.1
  done
  echo "postgresql:///postgres?host=$scratch&user=${RECOVERY_USER:-postgres}"
  wait
}
