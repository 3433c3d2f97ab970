import { z } from 'zod';
import { lengths } from '../http/fields.ts';
import { invalid } from '../runtime/field-error.ts';

/**
 * Text that a client sends as an e-mail address, normalised as addresses are stored and looked up. It does not use
 * `text()`, which normalises to NFC as a whole: that turns some look-alike characters into ASCII.
 */
export const emailText = () =>
  z
    .string()
    .overwrite(normaliseEmail)
    .refine(value => value !== '', invalid('must not be empty', 'empty'))
    .refine(value => value.isWellFormed(), invalid('must be well-formed Unicode', 'invalid_text'))
    .refine(value => !/\p{Cc}/u.test(value), invalid('must not contain control characters', 'invalid_text'))
    .refine(
      value => [...value].length <= lengths.email,
      invalid(`must be at most ${lengths.email} characters long`, 'too_long', { max: lengths.email }),
    )
    .meta({ minLength: 1, maxLength: lengths.email });

/** A valid e-mail address, normalised as it is stored and looked up. */
export const email = () => emailText().refine(isEmail, invalid('must be an e-mail address', 'wrong_format'));

/**
 * Normalises an address as it is stored and looked up: to NFC, and only ASCII letters to lower case, so that no
 * look-alike becomes another address. For the same reason, three characters stay unchanged that NFC would turn into
 * ASCII: U+037E, U+1FEF and U+212A (into `;`, `` ` `` and `K`).
 */
export function normaliseEmail(address: string): string {
  return address
    .trim()
    .replace(/[^\u037e\u1fef\u212a]+/g, part => part.normalize('NFC'))
    .replace(/[A-Z]/g, letter => letter.toLowerCase());
}

/** Checks the form only: text before and after one `@`, without white space. Only a mail can prove that it exists. */
export function isEmail(address: string): boolean {
  return /^[^\s@<>,;:"]+@[^\s@<>,;:"]+$/.test(address) && address.length <= lengths.email;
}
