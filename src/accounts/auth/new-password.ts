import { z } from 'zod';
import type { FieldError } from '../../lib/runtime/field-error.ts';
import { passwordLength } from './passwords.ts';

/**
 * Returns the fault of a new password, or undefined. Follows NIST SP 800-63B §3.1.1.2: a
 * minimum length, a list of common passwords, and no rules on its characters.
 */
export function passwordError(password: string): FieldError | undefined {
  const normalised = password.normalize('NFKC');
  const length = [...normalised].length;
  const { min, max } = passwordLength;
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
  if (isCommon(normalised.toLowerCase())) {
    return { message: 'is one of the most common passwords', code: 'too_common' };
  }

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
  // Removes the characters that users append to a common password: `Password1!` counts as
  // `password`.
  return (
    commonPasswords.has(password) ||
    commonPasswords.has(password.replace(/[^a-z]+$/, '')) ||
    /^(.)\1*$/u.test(password)
  );
}

/**
 * Passwords that attackers try first, in lower case, of at least 8 characters (shorter
 * passwords are rejected anyway). Compiled from passwords that published lists of leaked
 * passwords have in common.
 */
const commonPasswords: ReadonlySet<string> = new Set(
  `
    00000000 0123456789 11111111 111111111 11223344 112233445566 12121212 123123123 12341234 12344321 12345678
    123456789 1234567890 123456789a 123456aa 123456ab 1234abcd 1234qwer 123654789 123abc123 123qwe123 123qweasd
    13131313 147258369 147852369 159357159 1q2w3e4r 1q2w3e4r5t 1qaz2wsx 1qaz2wsx3edc 22222222 321654987 33333333
    44444444 456789123 55555555 66666666 741852963 77777777 789456123 87654321 88888888 987654321 9876543210 99999999
    a123456789 a1b2c3d4 aa123456 aa12345678 abc12345 abc123456 abcd1234 abcdabcd abcdefgh abcdefghi access14 admin123
    admin1234 admin12345 adminadmin administrator administrator1 alexander andrew123 angel123 anthony1 arsenal1
    asdf1234 asdfasdf asdfghjk asdfghjkl ashley12 autumn2024 autumn2025 autumn2026 babygirl babygirl1 backoffice
    baseball baseball1 basketball batman123 beautiful benjamin blink182 business butterfly changeit changeme
    changeme1 charlie1 chelsea1 chicken1 chocolate chocolate1 christian cocacola company1 company123 computer
    cookie12 corvette cupcake1 daniel123 danielle default1 demo1234 demodemo dragon123 dropbox1 elizabeth eminem12
    everton1 facebook facebook1 football football1 football12 freedom1 godzilla google123 gorgeous greenday guest123
    guestguest hardcore hello123 hellohello icecream ilovegod iloveyou iloveyou1 iloveyou2 internet jennifer jessica1
    jonathan jordan23 killer12 letmein! letmein1 letmein123 linkedin linkedin1 liverpool liverpool1 lovelove lovely12
    loveyou1 macintosh manchester master123 matthew1 maverick mercedes metallica michael1 michael123 michelle
    microsoft midnight midnight1 monkey123 mountain mylove12 myspace1 nicholas nintendo nirvana1 p@ssw0rd p@ssword
    passpass passw0rd password password1 password12 password123 passwort patricia pineapple playstation pokemon1
    pokemon123 precious princess princess1 q1w2e3r4 q1w2e3r4t5 qazwsxedc qweasdzxc qwer1234 qwerty12 qwerty123
    qwerty1234 qwerty12345 qwertyqwerty qwertyui qwertyuiop rainbow1 robert123 root1234 rootroot sales123 salesman
    samantha samsung1 scooter1 secret12 secret123 secretsecret shadow123 slipknot snoopy12 snowball spiderman
    spring2024 spring2025 spring2026 starwars strawberry summer2024 summer2025 summer2026 sunshine superman superman1
    sweetheart test1234 tester12 testtest thomas123 toor1234 trustno1 user1234 useruser victoria welcome1 welcome12
    welcome123 whatever william1 windows1 windows7 winter2024 winter2025 winter2026 zaq12wsx zaqxswcde zxcv1234
    zxcvbnm1 zxcvbnm123
  `
    .trim()
    .split(/\s+/),
);
