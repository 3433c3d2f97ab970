import { z } from 'zod';
import { commonPasswords } from './common-passwords.ts';
import { passwordLength } from './passwords.ts';

/**
 * Returns what is wrong with a new password, or undefined. Follows NIST SP 800-63B §3.1.1.2: a minimum length, a list
 * of common passwords, and no rules on its characters.
 */
export function passwordError(password: string): string | undefined {
  const normalised = password.normalize('NFKC');
  const length = [...normalised].length;
  if (length < passwordLength.min) return `must be at least ${passwordLength.min} characters long`;
  if (length > passwordLength.max) return `must be at most ${passwordLength.max} characters long`;
  if (!password.isWellFormed()) return 'must be well-formed Unicode';
  if (isCommon(normalised.toLowerCase())) return 'is one of the most common passwords';
  return undefined;
}

/** A password to set. White space counts. */
export const newPassword = () =>
  z
    .string()
    .superRefine((value, context) => {
      const message = passwordError(value);
      if (message) context.addIssue({ code: 'custom', message });
    })
    .meta({ minLength: passwordLength.min, maxLength: passwordLength.max });

function isCommon(password: string): boolean {
  // Removes what users append to a common password: `Password1!` counts as `password`.
  return (
    commonPasswords.has(password) || commonPasswords.has(password.replace(/[^a-z]+$/, '')) || /^(.)\1*$/u.test(password)
  );
}
