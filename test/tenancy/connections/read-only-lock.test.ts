import { expect } from 'chai';
import { connectionConfig, withConnection } from '../../../src/lib/postgres/connection.ts';
import { SessionClient } from '../../../src/lib/postgres/session-client.ts';
import { Client } from '../../support/client.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import {
  type RememberingPooler,
  startRememberingPooler,
} from '../../support/remembering-pooler.ts';
import { runCommand } from '../../support/run-command.ts';
import { useServiceProcesses } from '../../support/service-processes.ts';
import { use } from '../../support/use.ts';

const setting = 'default_transaction_read_only';

describe('a lock of default_transaction_read_only behind a pooler that sets sessions', () => {
  const server = use(createDedicatedServer);
  const unlocked = use(() => startRememberingPooler(server.url, `set ${setting} = off`));
  const locked = use(() => startRememberingPooler(server.url, `set ${setting} = on`));
  const processes = useServiceProcesses();
  let acme: Client;
  let globex: Client;
  let database: string;

  before(async () => {
    const tenants = [await server.provision('acme'), await server.provision('globex')];
    const { url } = await processes.start(environmentThrough(unlocked));

    const [first, second] = await Promise.all(
      tenants.map(async ({ tenant: { guid }, logins: [admin] }) => {
        const session = await new Client(url).post('/api/v1/auth/login', admin, {
          'X-Tenant': guid,
        });
        return new Client(url, session.body);
      }),
    );
    acme = first ?? expect.fail('acme has no administrator');
    globex = second ?? expect.fail('globex has no administrator');
    database = await server.databaseOf('acme');
  });

  function environmentThrough(pooler: RememberingPooler): Record<string, string> {
    const { DATABASE_URL = '' } = server.environment;
    return { ...server.environment, DATABASE_URL: pooler.through(DATABASE_URL) };
  }

  /** Ends the sessions of the tenant's database: a lock holds in those that begin after it. */
  const endSessions = () =>
    server.sql(
      `select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = '${database}'`,
    );

  /** Runs a statement in a session that writes under a lock, as that of a superuser does. */
  const writing = (statement: string) =>
    withConnection(server.url, async client => {
      await client.query(`set ${setting} = off`);
      await client.query(statement);
    });

  let number = 0;
  const create = async (client: Client): Promise<number> =>
    (await client.post('/api/v1/EntityStatus', { Title: `Title ${++number}` })).status;

  it('a lock of the database of a tenant, of its login, or of its login there refuses its changes and no others, and the statement that doctor prints ends it', async () => {
    const places: [lock: string, place: string][] = [
      [`alter database "${database}"`, `database ${database}`],
      [`alter role "${database}"`, `role ${database}`],
      [
        `alter role "${database}" in database "${database}"`,
        `role ${database} in database ${database}`,
      ],
    ];

    for (const [lock, place] of places) {
      await server.sql(`${lock} set ${setting} = on`);
      await endSessions();

      expect(await create(acme), place).to.equal(503);
      expect(await create(globex), place).to.equal(201);

      const { stdout } = await runCommand(
        'scripts/tenant.ts',
        ['doctor', '--json'],
        environmentThrough(unlocked),
      );
      const [finding, ...others] = JSON.parse(stdout).findings;
      expect(others).to.deep.equal([]);
      expect([finding.check, finding.tenant, finding.severity]).to.deep.equal([
        'read_only',
        'acme',
        'warning',
      ]);
      expect(finding.problem).to.include(`is on for ${place}`);

      const [, statement = ''] = /run as a superuser: (.*;)$/.exec(finding.remedy) ?? [];
      await server.sql(statement);
      expect(await create(acme), statement).to.equal(201);
    }
  });

  it('a lock of the server or of all logins refuses every command by its place, and the statement that is printed ends it', async () => {
    const run = () => runCommand('scripts/tenant.ts', ['list'], environmentThrough(unlocked));
    const locks = {
      'alter system': 'is on for the server.',
      'alter role all': 'is on for all roles.',
    };

    for (const [lock, place] of Object.entries(locks)) {
      await server.sql(`${lock} set ${setting} = on`);
      await server.sql('select pg_reload_conf()');

      const refused = await run();
      expect(refused.code).to.equal(1);
      expect(refused.stderr).to.include(place);
      const [, statement = ''] = /run as a superuser: (.*;)$/m.exec(refused.stderr) ?? [];

      for (const each of statement.split('; ')) await writing(each);
      expect((await run()).code, statement).to.equal(0);
    }
  });

  it('a pooler that remembers a lock does not keep it up: the service and commands write once the lock is gone', async () => {
    for (const command of [
      ['suspend', 'globex', '--yes'],
      ['resume', 'globex'],
    ]) {
      const { code, stderr } = await runCommand(
        'scripts/tenant.ts',
        command,
        environmentThrough(locked),
      );

      expect(code, stderr).to.equal(0);
    }
    await eventually(async () => (await create(globex)) === 201, announcedMs);
  });

  it('a session has the synchronous_commit of its database and its login, at least local, whatever a pooler has set', async () => {
    const pooler = await startRememberingPooler(server.url, 'set synchronous_commit = local');

    for (const [set, expected] of [
      ['remote_apply', 'remote_apply'],
      ['on', 'on'],
      ['off', 'local'],
    ]) {
      await server.sql(`alter database office set synchronous_commit = ${set}`);
      const { DATABASE_URL = '' } = environmentThrough(pooler);
      const client = new SessionClient(connectionConfig(DATABASE_URL, 'operator'));
      await client.connect();
      const { rows } = await client.query('show synchronous_commit');
      await client.end();

      expect(rows).to.deep.equal([{ synchronous_commit: expected }]);
    }

    await server.sql('alter database office reset synchronous_commit');
    await pooler.close();
  });
});
