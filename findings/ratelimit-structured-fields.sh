#!/usr/bin/env bash
# Guess: a parser of RateLimit fields reads those of draft 10 or says that it finds none.
# Found: ratelimit-header-parser returns an object of NaN and an invalid date: neither `remaining < 1` nor `remaining >= 1` is true.
. "$(dirname "$0")/support.sh"

use_npm ratelimit-header-parser@0.1.0
cat > run.js <<'JS'
import { parseRateLimit } from 'ratelimit-header-parser';

const fields = { ratelimit: '"default";r=50;t=30', 'ratelimit-policy': '"default";q=100;w=60' };
const found = parseRateLimit(fields);
console.log(found);
console.log('wait:', found.remaining < 1, 'go on:', found.remaining >= 1);
JS
expect node run.js <<'OUT'
{ limit: NaN, used: NaN, remaining: NaN, reset: Invalid Date }
wait: false go on: false
OUT
