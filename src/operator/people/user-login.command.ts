import { type Context, defineOperation, type Output, type Plan } from '../command/operation.ts';
import { argument, optionalSecret } from '../command/operation-fields.ts';
import { fieldsText } from '../command/text-table.ts';
import { countText } from '../command/texts.ts';

const user = { slug: argument('slug'), email: argument('email') };
export const password = optionalSecret(
  'Password',
  '--password-stdin',
  'read the password from stdin instead of generating one',
);

const disable = defineOperation({
  name: 'user disable',
  description: 'refuse the logins of a user and end all their sessions',
  fields: user,
  examples: ['user disable acme bob@acme.test --reason "left the company"'],
  access: 'installation',
  effect: 'locks out',
  async plan({ slug, email }, context) {
    const { setDisabled } = await import('./users.ts');
    await setDisabled(context.installation, slug, email, true, true);
    return planSessions(context, slug, email, ['The logins of', 'are refused']);
  },
  run: ({ slug, email }, context) => setState(context, slug, email, 'disabled'),
});

const enable = defineOperation({
  name: 'user enable',
  description: 'allow the logins of a disabled user again',
  fields: user,
  examples: ['user enable acme bob@acme.test'],
  access: 'installation',
  effect: 'changes',
  async plan({ slug, email: address }, { installation }) {
    const { setDisabled } = await import('./users.ts');
    const { guid, email } = await setDisabled(installation, slug, address, false, true);
    return { document: { guid, email, state: 'planned' }, text: () => `The logins of ${email} would be allowed.` };
  },
  run: ({ slug, email }, context) => setState(context, slug, email, 'enabled'),
});

const setPassword = defineOperation({
  name: 'user password',
  description: 'set a new password and end all sessions of the user; it is generated and shown only once',
  fields: { ...user, password },
  examples: ['user password acme bob@acme.test'],
  access: 'installation',
  effect: 'locks out',
  async plan({ slug, email, password: given }, context) {
    const { generatePassword, setPassword } = await import('./users.ts');
    const { createPasswords } = await import('../../auth/passwords.ts');
    await setPassword(context.installation, createPasswords(), slug, email, given ?? generatePassword(), true);
    return planSessions(context, slug, email, ['The password of', 'is replaced']);
  },
  async run({ slug, email, password: given }, { installation, output }) {
    const { generatePassword, setPassword } = await import('./users.ts');
    const { createPasswords } = await import('../../auth/passwords.ts');
    const password = given ?? generatePassword();
    const changed = await setPassword(installation, createPasswords(), slug, email, password);
    if (changed.disabledAt)
      output.warn(`${changed.email} is disabled. Allow the logins: npx backoffice user enable ${slug} ${email}`);
    if (!changed.confirmedAt)
      output.warn(
        `${changed.email} has no login until the link of the mail is used. ` +
          `If the mail is lost: npx backoffice user remove ${slug} ${email}, then user add`,
      );
    returnLogin(output, { guid: changed.guid, email: changed.email }, password, given !== undefined);
  },
});

export const loginOperations = [disable, enable, setPassword];

/** Returns the plan of a change that ends the sessions of a user. @param what the change, around the address */
async function planSessions(
  { installation }: Context<'installation'>,
  slug: string,
  email: string,
  [before, after]: [before: string, after: string],
): Promise<Plan> {
  const { planSessionRevocation } = await import('./user-sessions.ts');
  const sessions = await planSessionRevocation(installation, slug, { email });
  const consequence = `${after}, and ${countText(sessions.length, 'open session ends', 'open sessions end')}`;
  return {
    document: { email, sessions, state: 'planned' },
    text: () => `${before} ${email} ${consequence}.`,
    steady: `${before} ${email} ${after}`,
    confirm: {
      name: email,
      kind: 'address',
      consequence: `is a user of ${slug}. ${before} this address ${consequence}`,
    },
  };
}

async function setState(
  { installation, output }: Context<'installation'>,
  slug: string,
  address: string,
  state: 'disabled' | 'enabled',
): Promise<void> {
  const { setDisabled } = await import('./users.ts');
  const { guid, email } = await setDisabled(installation, slug, address, state === 'disabled');
  output.result({ guid, email, state }, () => `${email} is ${state}.`);
}

/** Returns the user with a generated password. A password that was given is not repeated. */
export function returnLogin(output: Output, user: object, password: string, wasGiven: boolean): void {
  const fields = wasGiven ? user : { ...user, password };
  output.result(fields, () => fieldsText(fields));
}
