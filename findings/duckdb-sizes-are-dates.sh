#!/usr/bin/env bash
# Guess: DuckDB reads a size such as 10-20-30 of a CSV file as a text.
# Found: two such sizes make a column of dates, month first; codes NAN and INF make a column of floating-point numbers.
. "$(dirname "$0")/support.sh"

use_npm @duckdb/node-api@1.5.6-r.1
cat > run.js <<'JS'
import { writeFileSync } from 'node:fs';
import { DuckDBInstance } from '@duckdb/node-api';

const connection = await (await DuckDBInstance.create()).connect();
for (const codes of [['10-20-30', '11-12-13'], ['NAN', 'INF'], ['NAN', 'ABC']]) {
  writeFileSync('codes.csv', ['Code', ...codes, ''].join('\n'));
  const read = await connection.runAndReadAll("select typeof(Code) as kind, Code::text as code from 'codes.csv'");
  console.log(JSON.stringify(read.getRowObjectsJson()));
}
JS
expect node run.js <<'OUT'
[{"kind":"DATE","code":"2030-10-20"},{"kind":"DATE","code":"2013-11-12"}]
[{"kind":"DOUBLE","code":"nan"},{"kind":"DOUBLE","code":"inf"}]
[{"kind":"VARCHAR","code":"NAN"},{"kind":"VARCHAR","code":"ABC"}]
OUT
