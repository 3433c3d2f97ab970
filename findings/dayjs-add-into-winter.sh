#!/usr/bin/env bash
# Guess: adding a day across the change of the clock gives midnight of the zone, in autumn as in spring.
# Found: in autumn Day.js prints midnight with the offset of summer, an instant one hour too early.
. "$(dirname "$0")/support.sh"

use_npm dayjs@1.11.23
cat > run.js <<'JS'
import dayjs from 'dayjs';
import timezone from 'dayjs/plugin/timezone.js';
import utc from 'dayjs/plugin/utc.js';

dayjs.extend(utc);
dayjs.extend(timezone);
for (const day of ['2026-03-29', '2026-10-25']) {
  const next = dayjs.tz(`${day} 00:00`, 'Europe/Berlin').add(1, 'day');
  console.log(next.format(), next.toISOString());
}
JS
expect env TZ=UTC node run.js <<'OUT'
2026-03-30T00:00:00+01:00 2026-03-29T23:00:00.000Z
2026-10-26T00:00:00+02:00 2026-10-25T22:00:00.000Z
OUT
