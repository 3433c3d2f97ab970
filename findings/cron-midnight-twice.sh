#!/usr/bin/env bash
# Guess: a job at 0:00 runs once on each day of Cairo, also when the clock goes back at midnight, as one at 2:30 does in Berlin.
# Found: cron runs it at both midnights of 30 October 2026, croner and cron-parser once.
. "$(dirname "$0")/support.sh"

use_npm cron@4.4.0 croner@11.0.1 cron-parser@5.10.6
cat > run.js <<'JS'
import { CronTime } from 'cron';
import { CronExpressionParser } from 'cron-parser';
import { Cron } from 'croner';

for (const [zone, expression, from] of [
  ['Africa/Cairo', '0 0 * * *', '2026-10-29T12:00:00Z'],
  ['Europe/Berlin', '30 2 * * *', '2026-10-24T12:00:00Z'],
]) {
  const currentDate = new Date(from);
  const time = new CronTime(expression, zone);
  const first = time.getNextDateFrom(currentDate, zone);
  const parsed = CronExpressionParser.parse(expression, { tz: zone, currentDate });
  const runs = {
    cron: [first.toJSDate(), time.getNextDateFrom(first.toJSDate(), zone).toJSDate()],
    croner: new Cron(expression, { timezone: zone }).nextRuns(2, currentDate),
    'cron-parser': [parsed.next().toDate(), parsed.next().toDate()],
  };
  for (const [name, dates] of Object.entries(runs)) {
    console.log(zone, name, ...dates.map(date => date.toISOString().slice(0, 16)));
  }
}
JS
expect node run.js <<'OUT'
Africa/Cairo cron 2026-10-29T21:00 2026-10-29T22:00
Africa/Cairo croner 2026-10-29T22:00 2026-10-30T22:00
Africa/Cairo cron-parser 2026-10-29T22:00 2026-10-30T22:00
Europe/Berlin cron 2026-10-25T00:30 2026-10-26T01:30
Europe/Berlin croner 2026-10-25T00:30 2026-10-26T01:30
Europe/Berlin cron-parser 2026-10-25T00:30 2026-10-26T01:30
OUT
