import { OperatorError } from '../../lib/log/operator-error.ts';
import { defineChange } from '../command/define-change.ts';
import { defineList } from '../command/define-list.ts';
import { argument, option, optionalArgument } from '../command/operation-fields.ts';
import { countText } from '../command/texts.ts';

const list = defineList({
  name: 'session list',
  help: {
    description: 'list the open sessions of a tenant, or of one user',
    examples: ['session list acme', 'session list acme bob@acme.test'],
  },
  fields: { slug: argument('slug'), email: optionalArgument('email') },
  async items({ slug, email }, { installation }) {
    const { listSessions } = await import('./user-sessions.ts');
    return listSessions(installation, slug, email);
  },
  nameOf: ({ id }) => id,
  empty: 'No open sessions.',
});

const revoke = defineChange({
  name: 'session revoke',
  help: {
    description: 'revoke one session, or all sessions of a user',
    examples: ['session revoke acme --user bob@acme.test --reason "lost laptop"'],
  },
  fields: {
    slug: argument('slug'),
    id: optionalArgument('session', { label: 'Session', unless: ['user'] }),
    user: option('<email>', 'revoke all sessions of this user', { kind: 'email', unless: ['id'] }),
  },
  effect: 'locks out',
  handling: { control: 'rows' },
  async change({ slug, id, user }, { installation }, isDryRun) {
    const { revokeSessions } = await import('./user-sessions.ts');
    const sessions = await revokeSessions(installation, slug, chosen({ id, user }), isDryRun);
    const open = countText(sessions.length, 'open session');
    const ofWhom = user === undefined ? '' : ` of ${user}`;
    const [which, whose] =
      user === undefined ? [`Session ${id} is`, 'its'] : [`All sessions${ofWhom} are`, 'their'];

    return {
      document: { revoked: id ?? user },
      facts: { sessions },
      plan: `${open} would be revoked.`,
      steady: ofWhom,
      confirm: { name: slug, consequence: `will revoke ${open}${ofWhom}` },
      done: `${which} revoked: every process refuses ${whose} tokens within a second, as a rule.`,
    };
  },
});

export const operations = [list, revoke];

function chosen({
  id,
  user,
}: {
  id: string | undefined;
  user: string | undefined;
}): { id: string } | { email: string } {
  if (id !== undefined && user === undefined) return { id };
  if (user !== undefined && id === undefined) return { email: user };
  throw new OperatorError('Give either the id of a session, or --user with an e-mail address', {
    usage: true,
  });
}
