#!/bin/sh
# Not run with pgBackRest where it was written: only its arguments are tested, with a stand-in program.
# RECOVERY_COMMAND for servers that pgBackRest backs up: the stanza has the name of the server. Restores the files of
# all databases together and those of one database; the others are zeros.
#   pgbackrest.sh SERVER DATABASE TIME   prints the URL of the recovered server, which ends when the standard input closes
#   pgbackrest.sh --list SERVER          prints the first and the last moment that can be had; needs jq
# scratch-server.sh has the settings; those of pgBackRest are in its own configuration.
. "$(dirname "$0")/scratch-server.sh"
if [ "$1" = --list ]; then
  pgbackrest --stanza="$2" --output=json info |
    jq -er '.[0].backup[0].timestamp.stop | "\(todate) \(now | floor | todate)"' ||
    refuse "pgBackRest has no backup of stanza $2."
  exit
fi

make_scratch
pgbackrest --stanza="$1" --pg1-path="$scratch/data" --type=time --target="$3" --target-action=promote \
  --db-include="$2" --archive-mode=off --log-level-console=warn restore > "$scratch/restore.log" 2>&1 3<&- ||
  refuse "pgBackRest could not restore stanza $1: $(tail -n 1 "$scratch/restore.log")"
serve_scratch
