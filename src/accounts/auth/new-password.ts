import { z } from 'zod';
import { problem } from '../../lib/problems.ts';
import type { FieldError } from '../../lib/runtime/field-error.ts';
import { comparedForm, isCommonPassword } from './common-passwords.ts';
import { passwordLength } from './passwords.ts';

/** The settings of new passwords. */
interface PasswordSettings {
  /** `PASSWORD_MIN_LENGTH`, in code points. */
  readonly passwordMinLength: number;
}

/** What is asked of a new password. */
export interface PasswordRule {
  /** In code points: `minPasswordLength`. */
  readonly minLength: number;
  /** The words of the account, of which the password must not consist (`accountWords`). */
  readonly words?: readonly string[];
}

/**
 * Returns the minimum length of a new password, in code points: what the installation asks for,
 * and less beside a second factor (NIST SP 800-63B-4 §3.1.1.2).
 * @param installation the setting `PASSWORD_MIN_LENGTH`
 */
export function minPasswordLength(installation: number, hasFactor: boolean): number {
  return hasFactor ? passwordLength.min : installation;
}

/** The problem of a password that a tenant refuses to let anybody log in with. */
export function passwordsRefused() {
  return problem('wrong_state', {
    detail: 'This tenant accepts no passwords: its people sign in at their provider.',
  });
}

/**
 * True for a password that is shorter than a new one of an account without a second factor has
 * to be.
 */
export function isShortPassword(password: string, installation: number): boolean {
  return lengthOf(password) < minPasswordLength(installation, false);
}

/**
 * Returns the fault of a new password, or undefined. Follows NIST SP 800-63B-4 §3.1.1.2: a
 * minimum length, a list of common passwords and of words of the account, and no rules on its
 * characters.
 */
export function passwordError(
  password: string,
  { minLength: min, words = [] }: PasswordRule,
): FieldError | undefined {
  const length = lengthOf(password);
  const { max } = passwordLength;
  if (length < min) {
    return { message: `must be at least ${min} characters long`, code: 'too_short', min };
  }
  if (length > max) {
    return { message: `must be at most ${max} characters long`, code: 'too_long', max };
  }
  if (!password.isWellFormed()) {
    return { message: 'must be well-formed Unicode', code: 'invalid_text' };
  }
  if (/\p{Cc}/u.test(password)) {
    return { message: 'must not contain control characters', code: 'invalid_text' };
  }
  if (isCommonPassword(password)) {
    return { message: 'is one of the most common passwords', code: 'too_common' };
  }
  if (consistsOf(comparedForm(password), words)) {
    return {
      message: 'must not consist of names and words of this account, with digits and signs',
      code: 'own_words',
    };
  }

  return undefined;
}

/** The rules of a new password, for the documentation. */
export const passwordRules =
  'At least 15 characters; the operator can ask for fewer, at least 8. None that many people use, ' +
  'and none that consists of names and words of the account, with digits and signs.';

/**
 * A password to set, of an account whose words are not known yet. White space counts.
 * @param mayHaveFactor true if the account may have a second factor, which is not known yet
 */
export const newPassword = (services: PasswordSettings, mayHaveFactor = false) =>
  z
    .string()
    .superRefine((value, context) => {
      const { passwordMinLength } = services;
      const minLength = minPasswordLength(passwordMinLength, mayHaveFactor);
      if (!passwordError(value, { minLength })) return;

      const error = passwordError(value, {
        minLength: minPasswordLength(passwordMinLength, false),
      });
      if (!error) return;
      const { message, ...params } = error;
      context.addIssue({ code: 'custom', message, params });
    })
    .meta({ minLength: passwordLength.min, maxLength: passwordLength.max });

/**
 * Requires that a new password follows the rule of its account.
 * @param field of the body that has the password
 * @throws {Problem} `validation_failed`
 */
export function requireNewPassword(field: string, password: string, rule: PasswordRule): void {
  const error = passwordError(password, rule);
  if (error) throw problem('validation_failed', { errors: { [field]: [error] } });
}

/** The account of a new password. */
export interface NamedAccount {
  readonly email: string;
  readonly firstName: string;
  readonly lastName: string;
}

/** The words of this service, which a password must not consist of either. */
const serviceWords = ['backoffice', 'back', 'office'];

/**
 * Returns the words of an account, which whoever guesses a password tries first: those of its
 * address, of the name of the person, and of the tenant.
 */
export function accountWords(
  { email, firstName, lastName }: NamedAccount,
  tenant: { readonly name: string; readonly slug: string },
): string[] {
  const words = [email, firstName, lastName, tenant.name, tenant.slug].flatMap(text =>
    comparedForm(text).split(/[^\p{L}\p{N}]+/u),
  );

  return [...new Set([...words, ...serviceWords])].filter(word => word.length > 1);
}

/**
 * True for a text of words, digits and signs alone, with at least one of the words. Each place
 * of the text is looked at once: a pattern would try every way to divide it.
 */
function consistsOf(text: string, words: readonly string[]): boolean {
  if (!/\p{L}/u.test(text)) return false;

  const reached = new Set([0]);
  for (let at = 0; at < text.length; at++) {
    if (!reached.has(at)) continue;

    const character = String.fromCodePoint(text.codePointAt(at) ?? 0);
    if (!/\p{L}/u.test(character)) reached.add(at + character.length);
    for (const word of words) {
      if (text.startsWith(word, at)) reached.add(at + word.length);
    }
  }

  return reached.has(text.length);
}

function lengthOf(password: string): number {
  return [...password.normalize('NFKC')].length;
}
