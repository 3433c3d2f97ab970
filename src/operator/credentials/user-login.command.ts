import type { Installation } from '../../control/installation.ts';
import { defineChange } from '../command/define-change.ts';
import { argument, optionalSecret } from '../command/operation-fields.ts';
import { fieldsText } from '../command/text-table.ts';
import { countText } from '../command/texts.ts';

const user = { slug: argument('slug'), email: argument('email') };
export const password = optionalSecret(
  'text',
  'Password',
  '--password-stdin',
  'read the password from stdin instead of generating one',
  { otherwise: 'one is generated', isAdvanced: true },
);

const disable = defineChange({
  name: 'user disable',
  help: {
    description: 'refuse the logins of a user and end all their sessions',
    examples: ['user disable acme bob@acme.test --reason "left the company"'],
  },
  fields: user,
  effect: 'locks out',
  handling: { control: 'rows' },
  async change(values, { installation }, isDryRun) {
    const ending = await endingSessions(installation, values, 'The logins of', 'are refused');
    const changed = await setState(installation, values, 'disabled', isDryRun);
    const { clones, inClones } = await readClones(installation, values);
    const webhooks = `Webhooks that send for this user stop: bin/backoffice webhooks ${values.slug}`;
    const keys = await madeKeysText(installation, values);

    return {
      ...ending,
      ...changed,
      document: { ...changed.document, clones },
      plan: `${ending.plan} ${webhooks}${keys}${inClones}`,
      done: `${changed.done} ${webhooks}${keys}${inClones}`,
    };
  },
});

const enable = defineChange({
  name: 'user enable',
  help: {
    description: 'allow the logins of a disabled user again',
    examples: ['user enable acme bob@acme.test'],
  },
  fields: user,
  effect: 'changes',
  async change(values, { installation }, isDryRun) {
    const enabled = await setState(installation, values, 'enabled', isDryRun);
    return { ...enabled, plan: `The logins of ${enabled.document.email} would be allowed.` };
  },
});

const setPassword = defineChange({
  name: 'user password',
  help: {
    description:
      'set a new password and end all sessions of the user; it is generated and shown only once',
    examples: ['user password acme bob@acme.test'],
  },
  fields: { ...user, password },
  effect: 'locks out',
  async change({ password: given, ...values }, { installation, output }, isDryRun) {
    const { generatePassword, setPassword } = await import('./users.ts');
    const { createPasswords } = await import('../../accounts/auth/passwords.ts');

    const { slug } = values;
    const ending = await endingSessions(installation, values, 'The password of', 'is replaced');
    const password = given ?? generatePassword();

    const changed = await setPassword(
      installation,
      createPasswords(),
      slug,
      values.email,
      password,
      isDryRun,
    );

    const { guid, email } = changed;
    if (changed.disabledAt && !isDryRun) {
      output.warn(
        `${email} is disabled. Allow the logins: bin/backoffice user enable ${slug} ${email}`,
      );
    }

    if (!changed.confirmedAt && !isDryRun) {
      output.warn(
        `${email} has no login until the link of the mail is used. ` +
          `If the mail is lost: bin/backoffice user remove ${slug} ${email}, then user add`,
      );
    }

    // A password that was given is not repeated.
    const shown = { guid, email, ...(!isDryRun && given === undefined && { password }) };
    const { clones, inClones } = await readClones(installation, values);

    return {
      ...ending,
      document: { ...shown, clones },
      plan: ending.plan + inClones,
      done: fieldsText(shown) + (inClones === '' ? '' : `\n\n${inClones.trim()}`),
    };
  },
});

export const loginOperations = [disable, enable, setPassword];

interface UserValues {
  readonly slug: string;
  readonly email: string;
}

/**
 * Returns the slugs of the clones in which an address may still log in, as the user was when
 * they were made, and a sentence for each, which begins with a space.
 */
export async function readClones(installation: Installation, { slug, email }: UserValues) {
  const { findOpenInClones } = await import('./users.ts');
  const clones = await findOpenInClones(installation, slug, email);
  const sentences = clones.map(
    clone => ` The address may log in to ${clone}: bin/backoffice user disable ${clone} ${email}`,
  );

  return { clones, inClones: sentences.join('') };
}

/**
 * Returns a sentence on the keys of programs that a user has made: they stay valid when the user
 * is disabled or removed. It begins with a space; empty: there are none.
 * @param isGone true if the user is removed by now
 */
export async function madeKeysText(
  installation: Installation,
  { slug, email: address }: UserValues,
  isGone = false,
): Promise<string> {
  const { requireEmail } = await import('./required-values.ts');
  const { countKeysMadeBy } = await import('./read-programs.ts');
  const email = requireEmail(address);
  const count = await countKeysMadeBy(installation, slug, email);
  if (count === 0) return '';

  const next = isGone ? `list ${slug}` : `revoke ${slug} --made-by ${email}`;
  return (
    ` The user has made ${countText(count, 'key')} of programs, still valid: ` +
    `bin/backoffice program key ${next}`
  );
}

/**
 * Returns the plan of a change that ends the sessions of a user.
 * @param before the change, around the address
 */
async function endingSessions(
  installation: Installation,
  { slug, email }: UserValues,
  before: string,
  after: string,
) {
  const { listSessions } = await import('./user-sessions.ts');
  const sessions = await listSessions(installation, slug, email);
  const consequence = `${after}, and ${countText(sessions.length, 'open session ends', 'open sessions end')}`;

  return {
    facts: { sessions },
    plan: `${before} ${email} ${consequence}.`,
    steady: `${before} ${email} ${after}`,
    confirm: {
      name: email,
      kind: 'address' as const,
      consequence: `is a user of ${slug}. ${before} this address ${consequence}`,
    },
  };
}

async function setState(
  installation: Installation,
  { slug, email: address }: UserValues,
  state: 'disabled' | 'enabled',
  isDryRun: boolean,
) {
  const { setDisabled } = await import('./users.ts');
  const { guid, email } = await setDisabled(
    installation,
    slug,
    address,
    state === 'disabled',
    isDryRun,
  );
  return { document: { guid, email, state }, done: `${email} is ${state}.` };
}
