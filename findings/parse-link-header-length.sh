#!/usr/bin/env bash
# Guess: parse-link-header finds the next page of each Link header that Node takes.
# Found: above 2,000 characters it returns null, as for a list without a next page, so a program that filters by many codes stops after the first page.
. "$(dirname "$0")/support.sh"

use_npm parse-link-header@2.0.0
cat > run.js <<'JS'
import parse from 'parse-link-header';

for (const length of [1900, 2000]) {
  const next = `https://office.example/list?filter=${'x'.repeat(length)}`;
  const found = parse(`<${next}>; rel="next"`);
  console.log(length, found && found.next.url === next);
}
JS
expect node run.js <<'OUT'
1900 true
2000 null
OUT
