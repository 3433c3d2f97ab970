import type { Command } from 'commander';
import { OperatorError } from '../../operator-error.ts';
import { addClient, listClients, listSessions, revokeClient, revokeSessions } from '../tenants/clients.ts';
import { disableKey, listKeys, rotateKey } from '../tenants/keys.ts';
import { printFields, printJson, printTable, withInstallation } from './command.ts';

interface Json {
  json?: boolean;
}

const json = ['--json', 'one JSON document on stdout'] as const;

/** Answers a command that lists something. */
function show(rows: Record<string, unknown>[], options: Json, whenEmpty: string): void {
  if (options.json) printJson(rows);
  else printTable(rows, whenEmpty);
}

/** Answers a command that did something. */
function done(fields: Record<string, unknown>, options: Json, sentence: string): void {
  if (options.json) printJson(fields);
  else process.stdout.write(`${sentence}\n`);
}

/** `key`: what access tokens are signed with. */
export function addKeyCommands(key: Command): void {
  key
    .command('list')
    .description('the signing keys of a tenant')
    .argument('<slug>')
    .option(...json)
    .action(
      withInstallation(async (installation, slug: string, options: Json) => {
        show(await listKeys(installation, slug), options, 'No keys.');
      }),
    );
  key
    .command('rotate')
    .description('sign with a new key; tokens of the one before stay good until they expire')
    .argument('<slug>')
    .option(...json)
    .action(
      withInstallation(async (installation, slug: string, options: Json) => {
        const kid = await rotateKey(installation, slug);
        done({ kid }, options, `${slug} signs with ${kid} now.`);
      }),
    );
  key
    .command('disable')
    .description('refuse every token of a key at once; a new key takes the place of the active one')
    .argument('<slug>')
    .argument('<kid>')
    .option(...json)
    .action(
      withInstallation(async (installation, slug: string, kid: string, options: Json) => {
        await disableKey(installation, slug, kid);
        done({ kid, status: 'disabled' }, options, `${kid} is disabled: its tokens are refused.`);
      }),
    );
}

/** `session`: logins that are open. */
export function addSessionCommands(session: Command): void {
  session
    .command('list')
    .description('open sessions of a tenant, or of one user')
    .argument('<slug>')
    .argument('[email]')
    .option(...json)
    .action(
      withInstallation(async (installation, slug: string, email: string | undefined, options: Json) => {
        show(await listSessions(installation, slug, email), options, 'No open sessions.');
      }),
    );
  session
    .command('revoke')
    .description('end one session, or all of a user')
    .argument('<slug>')
    .argument('[id]')
    .option('--user <email>', 'all sessions of this user')
    .option(...json)
    .action(
      withInstallation(
        async (installation, slug: string, id: string | undefined, options: Json & { user?: string }) => {
          const { user: email } = options;
          if ((id === undefined) === (email === undefined)) {
            throw new OperatorError('name a session, or a --user', { usage: true });
          }
          await revokeSessions(installation, slug, id === undefined ? { email: email ?? '' } : { id });
          done({ revoked: id ?? email }, options, 'Revoked: refused everywhere within a second.');
        },
      ),
    );
}

/** `client`: programs with legacy tokens. */
export function addClientCommands(client: Command): void {
  client
    .command('add')
    .description('let an old program act for a user; its secret is shown once')
    .argument('<slug>')
    .argument('<email>')
    .requiredOption('--name <name>', 'what the program is called')
    .option(...json)
    .action(
      withInstallation(async (installation, slug: string, email: string, options: Json & { name: string }) => {
        const added = await addClient(installation, slug, email, options.name);
        if (options.json) printJson(added);
        else printFields({ ...added });
      }),
    );
  client
    .command('list')
    .description('the old programs of a tenant, and how much they are used')
    .argument('<slug>')
    .option(...json)
    .action(
      withInstallation(async (installation, slug: string, options: Json) => {
        show(await listClients(installation, slug), options, 'No API clients.');
      }),
    );
  client
    .command('revoke')
    .description('refuse a client and every token it was given')
    .argument('<slug>')
    .argument('<id>')
    .option(...json)
    .action(
      withInstallation(async (installation, slug: string, id: string, options: Json) => {
        await revokeClient(installation, slug, id);
        done({ id, state: 'revoked' }, options, `${id} is revoked, and so are its tokens.`);
      }),
    );
}
