import { z } from 'zod';
import { lengths } from '../http/fields.ts';

/**
 * What stands in a request for an e-mail address, as it would be stored and looked up. Not one of the usual texts: those
 * are brought to NFC as a whole, which turns look-alikes into ASCII.
 */
export const emailText = () =>
  z
    .string()
    .overwrite(normaliseEmail)
    .refine(value => value !== '', 'must not be empty')
    .refine(value => value.isWellFormed(), 'must be well-formed Unicode')
    .refine(value => !/\p{Cc}/u.test(value), 'must not contain control characters')
    .refine(value => [...value].length <= lengths.email, `must be at most ${lengths.email} characters long`)
    .meta({ minLength: 1, maxLength: lengths.email });

/** An e-mail address in a request, as it is stored and looked up. */
export const email = () => emailText().refine(isEmail, 'must be an e-mail address');

/**
 * As stored and looked up: NFC, and ASCII letters only in lower case, so that no look-alike becomes another address. For
 * the same reason the three characters that NFC itself turns into ASCII (`;`, `` ` `` and `K`) stay as they are.
 */
export function normaliseEmail(address: string): string {
  return address
    .trim()
    .replace(/[^\u037e\u1fef\u212a]+/g, part => part.normalize('NFC'))
    .replace(/[A-Z]/g, letter => letter.toLowerCase());
}

/** Something before and after one `@`, without white space: whether it exists, only a mail can tell. */
export function isEmail(address: string): boolean {
  return /^[^\s@<>,;:"]+@[^\s@<>,;:"]+$/.test(address) && address.length <= lengths.email;
}
