#!/usr/bin/env bash
# Guess: a parameter that is repeated 21 times is an array, as one that is repeated 20 times is.
# Found: from the 21st repetition on it is an object with the keys 0, 1, 2, so `Array.isArray` says no.
. "$(dirname "$0")/support.sh"

use_npm qs@6.17.1
cat > run.js <<'JS'
import qs from 'qs';

for (const length of [20, 21]) {
  const query = Array.from({ length }, (_, index) => `code=A${index}`).join('&');
  const { code } = qs.parse(query);
  console.log(length, Array.isArray(code), JSON.stringify(code).slice(0, 15));
}
JS
expect node run.js <<'OUT'
20 true ["A0","A1","A2"
21 false {"0":"A0","1":"
OUT
