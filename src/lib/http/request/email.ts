import { domainToASCII, domainToUnicode } from 'node:url';
import { z } from 'zod';
import type { FieldError } from '../../runtime/field-error.ts';
import { lengths } from './fields.ts';

/**
 * The address that a text means, as addresses are stored and looked up; or the fault of the
 * text.
 */
export type ReadEmail =
  | { readonly address: string; readonly error?: undefined }
  | { readonly address?: undefined; readonly error: FieldError };

/**
 * Reads an e-mail address. Every way in reads addresses by this function: bodies, filters,
 * forms, commands and manifests. So an address that was stored is found by each of its
 * spellings, and a text that no address can have is refused everywhere with the same reason.
 *
 * White space around it is dropped, and ASCII letters become small. A domain beyond ASCII has
 * one spelling: `xn--…` becomes its letters. Only a mail can prove that the address exists.
 */
export function readEmail(text: string): ReadEmail {
  const trimmed = text.trim();
  if (trimmed === '') return { error: { message: 'must not be empty', code: 'empty' } };
  if (!trimmed.isWellFormed()) {
    return { error: { message: 'must be well-formed Unicode', code: 'invalid_text' } };
  }
  if (/\p{Cc}/u.test(trimmed)) {
    return { error: { message: 'must not contain control characters', code: 'invalid_text' } };
  }
  if (trimmed.length > 4 * lengths.email) return { error: tooLong };

  const [, local, domain] = /^([^@]+)@([^@]+)$/.exec(normalForm(trimmed)) ?? [];
  const name = domain === undefined ? undefined : readDomain(domain);
  if (local === undefined || name === undefined || impossible.test(local)) {
    return { error: noAddress };
  }

  const address = `${local}@${name}`;
  return [...address].length > lengths.email ? { error: tooLong } : { address };
}

/**
 * Returns a part of an address in the form in which addresses are stored, so that a search
 * finds it: `xn--bcher-kva.` finds the same addresses as `bücher.`.
 */
export function emailPart(text: string): string {
  return normalForm(text).replace(/xn--[a-z0-9-]+/g, label => domainToUnicode(label) || label);
}

/** An e-mail address in a request. */
export const email = () =>
  z
    .string()
    .overwrite(text => readEmail(text).address ?? text)
    .superRefine((text, context) => {
      const { error } = readEmail(text);
      if (!error) return;

      const { message, ...params } = error;
      context.addIssue({ code: 'custom', message, params });
    })
    .meta({ format: 'idn-email', minLength: 1, maxLength: lengths.email });

/** An e-mail address in a response: `idn-email`, because it may have letters beyond ASCII. */
export const storedEmail = () => z.string().meta({ format: 'idn-email' });

const noAddress: FieldError = { message: 'must be an e-mail address', code: 'wrong_format' };
const tooLong: FieldError = {
  message: `must be at most ${lengths.email} characters long`,
  code: 'too_long',
  max: lengths.email,
};

/**
 * Characters that no address has before its `@`: white space, invisible characters, characters
 * that reverse the direction of the text, separators of addresses, and U+FFFD, which stands for
 * lost bytes.
 */
const impossible = /[\s\p{C}\p{Default_Ignorable_Code_Point}<>,;:"\ufffd]/u;

/**
 * Returns a text in NFC, with ASCII letters, and no others, in lower case, so that no
 * look-alike becomes another address. For the same reason, three characters stay that NFC would
 * turn into ASCII: U+037E, U+1FEF and U+212A (into `;`, `` ` `` and `K`).
 */
function normalForm(text: string): string {
  return text
    .replace(/[^\u037e\u1fef\u212a]+/g, part => part.normalize('NFC'))
    .replace(/[A-Z]/g, letter => letter.toLowerCase());
}

/** True for a letter beyond ASCII whose small form has ASCII: U+212A would become `k`. */
function isLookAlike(letter: string): boolean {
  return letter > '\x7f' && /[a-z]/.test(letter.toLowerCase());
}

/**
 * True if a text has a letter that becomes ASCII in lower case, but is another letter in an
 * address.
 */
export function hasLookAlike(text: string): boolean {
  return [...text].some(isLookAlike);
}

function smallLetter(letter: string): string {
  return isLookAlike(letter) ? letter : letter.toLowerCase();
}

const asciiDomain = /^[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*$/;

/**
 * Reads a domain by UTS #46, as browsers do. Refuses a text that UTS #46 would turn into
 * another domain, apart from capital letters, because the domain that is shown and the domain
 * that is meant would differ: `exam\u00adple.com`, `。`, full-width letters, `127.1`.
 * @returns the domain with its letters; undefined when it is none
 */
function readDomain(domain: string): string | undefined {
  const ascii = domainToASCII(domain);
  if (!asciiDomain.test(ascii)) return undefined;

  const letters = domainToUnicode(ascii);
  const isStable = domainToASCII(letters) === ascii && !/(^|\.)xn--/.test(letters);
  const small = [...domain].map(smallLetter).join('');
  return isStable && (small === ascii || small === letters) ? letters : undefined;
}
