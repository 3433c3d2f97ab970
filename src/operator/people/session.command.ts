import { OperatorError } from '../../log/operator-error.ts';
import { defineOperation } from '../command/operation.ts';
import { argument, option, optionalArgument } from '../command/operation-fields.ts';
import { countText } from '../command/texts.ts';
import type { RevokedSessions } from './user-sessions.ts';

const list = defineOperation({
  name: 'session list',
  description: 'list the open sessions of a tenant, or of one user',
  fields: { slug: argument('slug'), email: optionalArgument('email') },
  examples: ['session list acme', 'session list acme bob@acme.test'],
  access: 'installation',
  effect: 'reads',
  isList: true,
  async run({ slug, email }, { installation, output }) {
    const { listSessions } = await import('./user-sessions.ts');
    const sessions = await listSessions(installation, slug, email);
    output.list(sessions, { row: session => session, name: ({ id }) => id, empty: 'No open sessions.' });
  },
});

const revoke = defineOperation({
  name: 'session revoke',
  description: 'revoke one session, or all sessions of a user',
  fields: {
    slug: argument('slug'),
    id: optionalArgument('text'),
    user: option('<email>', 'revoke all sessions of this user', { kind: 'email' }),
  },
  examples: ['session revoke acme --user bob@acme.test --reason "lost laptop"'],
  access: 'installation',
  effect: 'locks out',
  async plan({ slug, ...which }, { installation }) {
    const { planSessionRevocation } = await import('./user-sessions.ts');
    const sessions = await planSessionRevocation(installation, slug, chosen(which));
    return {
      document: { state: 'planned', sessions },
      text: () => `${countText(sessions.length, 'open session')} would be revoked.`,
      steady: ofWhom(which),
      confirm: { name: slug, consequence: `will revoke ${countText(sessions.length, 'open session')}${ofWhom(which)}` },
    };
  },
  async run({ slug, ...which }, { installation, output }) {
    const { revokeSessions } = await import('./user-sessions.ts');
    await revokeSessions(installation, slug, chosen(which));
    const { id, user } = which;
    output.result({ revoked: id ?? user }, () =>
      id === undefined
        ? `All sessions of ${user} are revoked: every process refuses their tokens within a second.`
        : `Session ${id} is revoked: every process refuses its tokens within a second.`,
    );
  },
});

export const operations = [list, revoke];

function ofWhom({ user }: { user: string | undefined }): string {
  return user === undefined ? '' : ` of ${user}`;
}

function chosen({ id, user }: { id: string | undefined; user: string | undefined }): RevokedSessions {
  if (id !== undefined && user === undefined) return { id };
  if (user !== undefined && id === undefined) return { email: user };
  throw new OperatorError('Give either the id of a session, or --user with an e-mail address', { usage: true });
}
