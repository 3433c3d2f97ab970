import { z } from 'zod';
import type { FieldError } from '../runtime/field-error.ts';
import { commonPasswords } from './common-passwords.ts';
import { passwordLength } from './passwords.ts';

/**
 * Returns what is wrong with a new password, or undefined. Follows NIST SP 800-63B §3.1.1.2: a minimum length, a list
 * of common passwords, and no rules on its characters.
 */
export function passwordError(password: string): FieldError | undefined {
  const normalised = password.normalize('NFKC');
  const length = [...normalised].length;
  const { min, max } = passwordLength;
  if (length < min) return { message: `must be at least ${min} characters long`, code: 'too_short', min };
  if (length > max) return { message: `must be at most ${max} characters long`, code: 'too_long', max };
  if (!password.isWellFormed()) return { message: 'must be well-formed Unicode', code: 'invalid_text' };
  if (/\p{Cc}/u.test(password)) return { message: 'must not contain control characters', code: 'invalid_text' };
  if (isCommon(normalised.toLowerCase())) return { message: 'is one of the most common passwords', code: 'too_common' };
  return undefined;
}

/** A password to set. White space counts. */
export const newPassword = () =>
  z
    .string()
    .superRefine((value, context) => {
      const error = passwordError(value);
      if (!error) return;
      const { message, ...params } = error;
      context.addIssue({ code: 'custom', message, params });
    })
    .meta({ minLength: passwordLength.min, maxLength: passwordLength.max });

function isCommon(password: string): boolean {
  // Removes what users append to a common password: `Password1!` counts as `password`.
  return (
    commonPasswords.has(password) || commonPasswords.has(password.replace(/[^a-z]+$/, '')) || /^(.)\1*$/u.test(password)
  );
}
