#!/usr/bin/env bash
# Guess: with `cast`, a code such as 0X1F, which is no decimal number, stays a text.
# Found: csv-parse makes three different codes the number 0: it reads a number as far as the x.
. "$(dirname "$0")/support.sh"

use_npm csv-parse@7.0.3
cat > run.js <<'JS'
import { parse } from 'csv-parse/sync';

const rows = parse('Code\n0X1F\n0B1\n0O7\n1_000\n', { cast: true, columns: true });
console.log(JSON.stringify(rows.map(row => row.Code)));
JS
expect node run.js <<'OUT'
[0,0,0,"1_000"]
OUT
