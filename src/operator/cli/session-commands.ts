import type { Command } from 'commander';
import { OperatorError } from '../../operator-error.ts';
import { withInstallation } from './command.ts';
import { jsonOption, type OutputOptions, printResult } from './output.ts';
import { printList } from './print-list.ts';

interface RevokeOptions extends OutputOptions {
  /** E-mail address of the user whose sessions are revoked. */
  user?: string;
}

/** Adds the commands of `session`: the open logins of users. */
export function addSessionCommands(program: Command): void {
  const session = program.command('session').description('open logins of users');
  session
    .command('list')
    .description('list the open sessions of a tenant, or of one user')
    .argument('<slug>')
    .argument('[email]')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, slug: string, email: string | undefined, options: OutputOptions) => {
        const { listSessions } = await import('../tenants/user-sessions.ts');
        const sessions = await listSessions(installation, slug, email);
        printList(options, sessions, { row: session => session, name: ({ id }) => id, empty: 'No open sessions.' });
      }),
    );
  session
    .command('revoke')
    .description('revoke one session, or all sessions of a user')
    .argument('<slug>')
    .argument('[id]')
    .option('--user <email>', 'revoke all sessions of this user')
    .option(...jsonOption)
    .action(
      withInstallation(async (installation, slug: string, id: string | undefined, options: RevokeOptions) => {
        const { user: email } = options;
        if ((id === undefined) === (email === undefined)) {
          throw new OperatorError('Give either the id of a session, or --user with an e-mail address', { usage: true });
        }
        const { revokeSessions } = await import('../tenants/user-sessions.ts');
        await revokeSessions(installation, slug, id === undefined ? { email: email ?? '' } : { id });
        printResult(options, { revoked: id ?? email }, () =>
          id === undefined
            ? `All sessions of ${email} are revoked: every process refuses their tokens within a second.`
            : `Session ${id} is revoked: every process refuses its tokens within a second.`,
        );
      }),
    );
}
