#!/usr/bin/env bash
# Guess: a JSON string stays a text in DuckDB, as JSON has types of its own.
# Found: a string with three numbers becomes a date with the day first, where the CSV reader of the same program takes the month first.
. "$(dirname "$0")/support.sh"

use_npm @duckdb/node-api@1.5.6-r.1
cat > run.js <<'JS'
import { writeFileSync } from 'node:fs';
import { DuckDBInstance } from '@duckdb/node-api';

const connection = await (await DuckDBInstance.create()).connect();
const code = '01-02-2026';
writeFileSync('codes.json', JSON.stringify([{ Code: code }]));
writeFileSync('codes.csv', `Code\n${code}\n`);
for (const file of ['codes.json', 'codes.csv']) {
  const read = await connection.runAndReadAll(`select typeof(Code) as kind, Code::text as code from '${file}'`);
  console.log(file, JSON.stringify(read.getRowObjectsJson()[0]));
}
JS
expect node run.js <<'OUT'
codes.json {"kind":"DATE","code":"2026-02-01"}
codes.csv {"kind":"DATE","code":"2026-01-02"}
OUT
