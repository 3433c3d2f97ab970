import { defineChange } from '../command/define-change.ts';
import { argument, requiredOption } from '../command/operation-fields.ts';
import { countText } from '../command/texts.ts';
import { readClones } from './user-login.command.ts';

export const resetFactorsOperation = defineChange({
  name: 'user factors reset',
  help: {
    description:
      'remove all second factors of a user who has lost them, with the recovery codes: the ' +
      'password alone lets in then',
    examples: ['user factors reset acme bob@acme.test --reason "lost the phone, called back"'],
    more: `Make sure in another way than by mail that the person asks for it: by a call back, or in person. The open sessions
of the user go on. Where the role of the user requires a second factor, the next login sets up another one.`,
  },
  fields: {
    slug: argument('slug'),
    email: argument('email'),
    reason: requiredOption('<text>', 'why, for the log of operators (bin/backoffice logs)', {
      kind: 'text',
    }),
  },
  effect: 'destroys',
  handling: { control: 'rows' },
  async change({ slug, email: address }, { installation }, isDryRun) {
    const { resetFactorsOf } = await import('./users.ts');
    const { guid, email, factors } = await resetFactorsOf(installation, slug, address, isDryRun);
    const { clones, inClones } = await readClones(installation, { slug, email });

    const count = countText(factors, 'second factor');
    return {
      document: { guid, email, factors, clones },
      plan: `${email} would lose ${count} and all recovery codes.${inClones}`,
      steady: count,
      confirm: {
        name: email,
        kind: 'address',
        consequence: `is a user of ${slug}, who will lose ${count} and all recovery codes`,
      },
      done: `${email} has no second factor any more: ${count} and all recovery codes are removed.${inClones}`,
    };
  },
});
