import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { serverFault } from '../../../src/operator/servers/usable-server.ts';
import type { ScriptResult } from '../../support/command-line.ts';
import { createPlainServer } from '../../support/plain-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { useEach } from '../../support/use.ts';
import { useWorld } from '../../support/world.ts';

type Door = () => Promise<ScriptResult>;

const usable = {
  version: 160_000,
  isStandby: false,
  lock: null,
  login: 'operator',
  database: 'office',
  encoding: 'UTF8',
  mayCreateDatabases: true,
  mayCreateRoles: true,
  mayCreateTables: true,
};
const ofOperator = { subject: 'The control database', isOperator: true, isControl: true };

describe('a server that cannot be used', () => {
  const world = useWorld();
  const server = useEach(() => createPlainServer('createdb createrole'));
  const masterKey = randomBytes(32).toString('base64');

  const environment = (database: string): Record<string, string> => ({
    DATABASE_URL: server.url(database),
    MASTER_KEY: masterKey,
    PORT: '0',
    MANAGEMENT_PORT: '0',
  });

  const migrate = (database: string) =>
    runCommand('scripts/backoffice.ts', ['control', 'migrate'], environment(database));
  const provision = (database: string) =>
    runCommand(
      'scripts/backoffice.ts',
      ['provision', 'acme', '--name', 'Acme', '--admin-email', 'a@acme.test'],
      environment(database),
    );
  const start = (database: string) => runCommand('src/main.ts', [], environment(database));
  const add = (database: string) =>
    runCommand(
      'scripts/backoffice.ts',
      ['server', 'add', 'second'],
      world.environment,
      server.url(database),
    );

  /** Everything on the server that a command could have made. */
  const names = () =>
    server.sql(
      `select datname::text as name from pg_database union all select rolname::text from pg_roles order by 1`,
    );

  /**
   * Expects that each door refuses with the sentence, and makes nothing. Runs the statement
   * that the first one prints, as a superuser.
   */
  async function expectRefused(doors: readonly Door[], sentence: RegExp): Promise<void> {
    const before = await names();
    const statements: string[] = [];

    for (const door of doors) {
      const { code, stdout, stderr } = await door();
      expect({ code, stdout }, stderr).to.deep.equal({ code: 1, stdout: '' });
      expect(stderr)
        .to.match(sentence)
        .and.not.match(/Unexpected|\n./);
      statements.push(/superuser: (.*);\n$/.exec(stderr)?.[1] ?? '');
    }

    expect(await names()).to.deep.equal(before);
    for (const statement of statements[0]?.split('; ').filter(Boolean) ?? []) {
      await server.sql(statement);
    }
  }

  async function expectOpen(door: Door): Promise<void> {
    const { code, stderr } = await door();
    expect(code, stderr).to.equal(0);
  }

  it('each fault has its sentence, and a server of PostgreSQL 16 that takes writes has none', () => {
    const fault = (state: Partial<typeof usable>, more: Partial<typeof ofOperator> = {}) =>
      serverFault({ ...usable, ...state }, { ...ofOperator, ...more });

    expect(fault({})).to.equal(undefined);
    expect(fault({ version: 150_019 })).to.equal(
      'it is on PostgreSQL 15. Upgrade its server: PostgreSQL 16 or later is required',
    );
    expect(fault({ isStandby: true })).to.match(
      /it is on a standby.*Give the address of the primary in its URL$/,
    );
    const withoutRights = {
      mayCreateDatabases: false,
      mayCreateRoles: false,
      mayCreateTables: false,
    };
    expect(fault(withoutRights, { isOperator: false }), 'the login of the service').to.equal(
      undefined,
    );
    expect(fault({ encoding: 'LATIN1' }, { isControl: false })).to.equal(undefined);
  });

  it('a login without the rights of an operator is refused by control migrate and server add before they write, and passes after the statement that they print', async () => {
    await server.sql('alter role operator nocreatedb nocreaterole');
    const missing =
      /login operator lacks CREATEDB and CREATEROLE\. Run as a superuser: alter role "operator" createdb/;
    await expectRefused([() => migrate('office'), () => add('postgres')], missing);

    await expectOpen(() => migrate('office'));

    await server.sql('alter role operator nocreaterole');
    await expectRefused(
      [() => provision('office'), () => migrate('office')],
      /lacks CREATEROLE\. Run/,
    );
    await expectOpen(() => provision('office'));
  });

  it('a server that somebody has locked is refused at every door with the statement that unlocks it, wherever the lock is', async () => {
    await expectOpen(() => migrate('office'));
    const setting = 'default_transaction_read_only';
    const locks = {
      'alter role operator': /is on for role operator\. .*alter role "operator" reset/,
      'alter database office': /is on for database office\. .*alter database "office" reset/,
      'alter role operator in database office':
        /is on for role operator in database office\. .*in database "office" reset/,
      'alter system': /is on for the server\. .*alter system reset/,
    };

    for (const [lock, sentence] of Object.entries(locks)) {
      await server.sql(`${lock} set ${setting} = on`);
      await server.sql('select pg_reload_conf()');
      const doors = [
        () => migrate('office'),
        () => start('office'),
        () => provision('office'),
        () => add('office'),
      ];

      await expectRefused(
        doors,
        new RegExp(`cannot be used: it is read-only, because ${setting} ${sentence.source}`),
      );

      await expectOpen(() => migrate('office'));
    }
  });

  it('a control database whose login may create no tables in it, or that does not take every letter, is refused before anything is written', async () => {
    await server.sql('create database given');
    const noTables =
      /may not create tables in database given\. Run as a superuser: alter database "given" owner to/;
    await expectRefused([() => migrate('given')], noTables);
    await expectOpen(() => migrate('given'));

    await server.sql(
      `create database latin owner operator encoding 'LATIN1' locale 'C' template template0`,
    );
    const encoding =
      /database latin has the encoding LATIN1, and UTF8 is required\. Name a database that does not exist/;
    await expectRefused([() => migrate('latin'), () => start('latin')], encoding);
  });
});
