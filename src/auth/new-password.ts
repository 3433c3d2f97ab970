import { z } from 'zod';
import { commonPasswords } from './common-passwords.ts';
import { passwordLength } from './passwords.ts';

/**
 * What is wrong with a new password; undefined when nothing is. NIST SP 800-63B §3.1.1.2: a length, a list of common ones,
 * and no rules on which characters it is made of.
 */
export function passwordError(password: string): string | undefined {
  const normal = password.normalize('NFKC');
  const length = [...normal].length;
  if (length < passwordLength.min) return `must be at least ${passwordLength.min} characters long`;
  if (length > passwordLength.max) return `must be at most ${passwordLength.max} characters long`;
  if (!password.isWellFormed()) return 'must be well-formed Unicode';
  if (isCommon(normal.toLowerCase())) return 'is one of the most common passwords';
  return undefined;
}

/** A password that is being set; white space counts. */
export const newPassword = () =>
  z
    .string()
    .superRefine((value, context) => {
      const fault = passwordError(value);
      if (fault) context.addIssue({ code: 'custom', message: fault });
    })
    .meta({ minLength: passwordLength.min, maxLength: passwordLength.max });

function isCommon(password: string): boolean {
  // `Password1!` is `password`, decorated.
  return (
    commonPasswords.has(password) || commonPasswords.has(password.replace(/[^a-z]+$/, '')) || /^(.)\1*$/u.test(password)
  );
}
