#!/usr/bin/env bash
# Guess: a JSON string stays a text in DuckDB, as JSON has types of its own.
# Found: strings of digits and hyphens become a date, with the day first, and are written differently afterwards.
. "$(dirname "$0")/support.sh"

use_npm @duckdb/node-api@1.5.6-r.1
cat > run.js <<'JS'
import { writeFileSync } from 'node:fs';
import { DuckDBInstance } from '@duckdb/node-api';

const connection = await (await DuckDBInstance.create()).connect();
for (const code of ['01-02-2026', '01/02/2026', '12:30:00', '00042']) {
  writeFileSync('codes.json', JSON.stringify([{ Code: code }]));
  const read = await connection.runAndReadAll("select typeof(Code) as kind, Code::text as code from 'codes.json'");
  console.log(code, JSON.stringify(read.getRowObjectsJson()[0]));
}
JS
expect node run.js <<'OUT'
01-02-2026 {"kind":"DATE","code":"2026-02-01"}
01/02/2026 {"kind":"VARCHAR","code":"01/02/2026"}
12:30:00 {"kind":"TIME","code":"12:30:00"}
00042 {"kind":"VARCHAR","code":"00042"}
OUT
