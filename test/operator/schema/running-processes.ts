import { randomUUID } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { expect } from 'chai';
import { controlHead } from '../../../src/control/control-version.ts';
import { newProcess } from '../../../src/control/process-identity.ts';
import { isRunning } from '../../../src/control/running-process.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { compatibleFrom, readSchemaSteps } from '../../../src/operator/schema/schema-steps.ts';
import type { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { type ServerBeside, startServerBeside } from '../../support/server-beside.ts';
import { type SilentProxy, startSilentProxy } from '../../support/silent-proxy.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { sql } from '../../support/world.ts';
import type { MigrationFleet } from './migration-fleet.ts';

const path = '/api/v1/EntityStatus';

/** Adds the tests of migrations while processes of the service run. */
export function testRunningProcesses(fleet: MigrationFleet): void {
  const { world, next, query, runTenant } = fleet;

  describe('requests during a migration', () => {
    let proxy: SilentProxy;
    /** Reaches its control database through the proxy. */
    let server: ServerBeside;
    let client: Client;

    before(async () => {
      proxy = await startSilentProxy();
      server = await startServerBeside(world, {
        DATABASE_URL: proxy.through(world.installation.controlUrl),
      });
    });
    after(async () => {
      await server.stop();
      await proxy.close();
    });
    beforeEach(async () => {
      client = (await world.login(world.acme)).at(server.url);
      // Opens a connection that is verified, and then idle.
      await eventually(
        async () => (await client.get(path, { 'Cache-Control': 'no-cache' })).status === 200,
      );
    });

    const titles = async () =>
      (await sql<{ title: string }>(world.acme, 'select title from entity_statuses')).map(
        ({ title }) => title,
      );

    async function migrate(): Promise<void> {
      const { code, stderr } = await runTenant(['migrate', 'acme', '--despite-running']);
      expect([code, stderr]).to.deep.equal([0, '']);
      expect((await sql(world.acme, 'select from labels')).length).to.equal(1);
    }

    it('a write that is on its way to the database during a migration gets 503 and changes nothing', async () => {
      const statement = proxy.hold(world.acme.database, packet => packet.includes('Old build'));
      const write = client.post(path, { Title: 'Old build' });
      try {
        await eventually(() => statement.isHolding);
        await migrate();
      } finally {
        statement.release();
      }
      expect((await write).status).to.equal(503);
      expect(await titles()).to.not.include('Old build');
    });

    it('a write whose body arrives after its tenant was migrated gets 503 and changes nothing', async () => {
      const body = JSON.stringify({ Title: 'Slow body' });
      const socket = connect(server.service.port, '127.0.0.1');
      let response = '';
      socket.setEncoding('utf8').on('data', text => (response += text));

      socket.write(
        [
          `POST ${path} HTTP/1.1`,
          'Host: backoffice.test',
          `Authorization: Bearer ${client.tokens?.accessToken}`,
          'Content-Type: application/json',
          `Content-Length: ${body.length}`,
          '',
          body.slice(0, 5),
        ].join('\r\n'),
      );

      try {
        await migrate();
        socket.write(body.slice(5));
        await eventually(() => response.includes('\r\n\r\n'));
      } finally {
        socket.destroy();
      }

      expect(response).to.match(/^HTTP\/1\.1 503 /);
      expect(await titles()).to.not.include('Slow body');
    });

    it('a migration run ends no sooner than 1 s after it took its last tenant out of service', async () => {
      await operator(
        'select pg_terminate_backend(pid, 2000) from pg_stat_activity where datname = $1',
        [world.acme.database],
      );
      await migrate();
      const [run] = await query<{ ms: number }>(
        `select (extract(epoch from r.finished_at - o.started_at) * 1000)::int as ms
           from migration_runs r join migration_outcomes o on run_id = r.id order by r.id desc limit 1`,
      );
      expect(run?.ms).to.be.at.least(950);
    });

    // A drill runs the next build, and rolls it back.
    it('a build serves after a later migration that is compatible, and is refused after one that is not, even if a compatible one follows', async () => {
      const oldest = () =>
        sql(
          world.acme,
          'select schema_version as version, compatible_from as oldest from tenant_identity',
        );

      const migrated = (values: string) =>
        sql(world.acme, `insert into migrations (name, compatible) values ${values}`);

      const codeOf = async () => {
        await operator(
          'select pg_terminate_backend(pid, 2000) from pg_stat_activity where datname = $1',
          [world.acme.database],
        );

        const { status, body } = await client.get(path, { 'Cache-Control': 'no-cache' });
        return [status, body.code];
      };

      await migrated(`('9997-labels', true)`);
      // The migration changes nothing that this build uses.
      const required = compatibleFrom(await readSchemaSteps());
      expect(await oldest()).to.deep.equal([{ version: '9997-labels', oldest: required }]);
      expect(await codeOf()).to.deep.equal([200, undefined]);

      await migrated(`('9998-not', false), ('9999-again', true)`);
      expect(await oldest()).to.deep.equal([{ version: '9999-again', oldest: '9998-not' }]);
      expect(await codeOf()).to.deep.equal([503, 'migration_pending']);

      await sql(world.acme, `delete from migrations where name > '9997'`);
    });
  });

  describe('changes that running processes block', () => {
    afterEach(() => query('delete from processes where host = ?', ['elsewhere']));

    const tenant = (...args: string[]) => runTenant(args);
    const versions = () => tenantsByVersion(fleet);
    const { host, pid, build } = newProcess('service');
    /** The process that serves the world. */
    const own = (head = next.currentHead) => ({ host, pid, build, head });

    it('migrate is refused while a process serves a tenant that it could not serve afterwards', async () => {
      await register(fleet, next.head);

      const [{ code, stdout, stderr }, json] = await Promise.all([
        tenant('migrate', '--all'),
        tenant('migrate', 'acme', '--json'),
      ]);

      expect({ code, stdout }).to.deep.equal({ code: 1, stdout: '' });
      expect(stderr).to.equal(
        `1 running process would stop serving 3 tenants: ${host} pid ${pid} (build ${build} with ${next.currentHead}). ` +
          'Stop them first, or add --despite-running to go on; nothing was changed.\n',
      );

      const { error } = JSON.parse(json.stderr);
      expect(error).to.deep.include({ code: 'blocked', blockedBy: [{ ...own(), tenants: 1 }] });
      expect(await versions()).to.deep.equal({ [next.currentHead]: 3 });
      expect(await query('select from migration_runs')).to.deep.equal([]);
    });

    it('migrate --dry-run names the processes that block the run', async () => {
      const [json, { code, stdout }] = await Promise.all([
        tenant('migrate', '--all', '--dry-run', '--json'),
        tenant('migrate', '--all', '--dry-run'),
      ]);
      expect(JSON.parse(json.stdout).blockedBy).to.deep.equal([{ ...own(), tenants: 3 }]);
      expect(code).to.equal(1);
      expect(stdout).to.match(/^-- Refused: 1 running process would stop serving 3 tenants: /);
      const despite = await tenant('migrate', '--all', '--dry-run', '--despite-running');
      expect([despite.code, despite.stdout.includes('Refused')]).to.deep.equal([0, false]);
    });

    it('a process that has not registered its version yet blocks a migration that is not compatible', async () => {
      await register(fleet, null);
      const { error } = JSON.parse((await tenant('migrate', 'acme', '--json')).stderr);
      const unknown = { host: 'elsewhere', pid: 17, build: '0.0.9', head: null };
      expect(error.blockedBy).to.deep.equal([
        { ...own(), tenants: 1 },
        { ...unknown, tenants: 1 },
      ]);
    });

    it('control migrate is refused while a process runs that could not start again afterwards', async () => {
      const [head, nextHead] = [await controlHead(), '9999-notes'];
      await writeFile(next.file(`migrations/control/${nextHead}.ts`), controlMigration);
      const migrate = (...args: string[]) =>
        runCommand(
          next.file('scripts/control.ts'),
          ['migrate', '--json', ...args],
          world.environment,
        );
      const { code, stderr } = await migrate();
      expect([code, JSON.parse(stderr).error.blockedBy]).to.deep.equal([1, [own(head)]]);
      expect(stderr).to.include('1 running process could not start again: ');
      expect(await query('select from migrations where name > ?', [head])).to.deep.equal([]);

      expect(JSON.parse((await migrate('--despite-running')).stdout)).to.deep.equal({
        applied: [nextHead],
      });
    });

    it('rollback is refused while a process runs that could not serve the tenant afterwards', async () => {
      await register(fleet, next.head);
      await tenant('migrate', 'acme', '--despite-running');
      const { code, stderr } = await tenant('rollback', 'acme', '--yes', '--json');
      const blocking = { host: 'elsewhere', pid: 17, build: '0.0.9', head: next.head, tenants: 1 };
      expect([code, JSON.parse(stderr).error.blockedBy]).to.deep.equal([1, [blocking]]);
      expect(await versions()).to.deep.equal({ [next.head]: 1, [next.currentHead]: 2 });

      expect((await tenant('rollback', 'acme', '--yes', '--despite-running')).code).to.equal(0);
      expect(await versions()).to.deep.equal({ [next.currentHead]: 3 });
      expect(await sql(world.acme, `select to_regclass('labels') as found`)).to.deep.equal([
        { found: null },
      ]);
    });
  });
}

/** Adds the test of migrations without a process of the service: it ends that of the world. */
export function testEndedProcesses(fleet: MigrationFleet): void {
  const { world, next, query, runTenant } = fleet;

  it('a process without a beat for five seconds, a command and an ended process block nothing', async () => {
    await world.service.stop();
    await eventually(
      async () => (await query(`select from processes p where ${isRunning('p')}`)).length === 0,
    );
    await register(fleet, next.currentHead, 6);
    await register(fleet, next.currentHead);
    await query(`update processes set kind = 'command' where seen_at > now()`);
    const { code, stderr } = await runTenant(['migrate', '--all']);
    expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
    expect(await tenantsByVersion(fleet)).to.deep.equal({ [next.head]: 3 });
  });
}

/** Returns the number of tenants by their version. */
async function tenantsByVersion({ query }: MigrationFleet): Promise<Record<string, number>> {
  const rows = await query<{ version: string; tenants: number }>(
    'select schema_version as version, count(*)::int as tenants from tenants group by 1',
  );
  return Object.fromEntries(rows.map(({ version, tenants }) => [version, tenants]));
}

/**
 * Registers a process of the service whose last exchange was some seconds ago. By default it is
 * in the future, so that the process counts as running for the whole test.
 */
async function register({ query }: MigrationFleet, head: string | null, age = -60): Promise<void> {
  await query(
    `insert into processes (id, kind, host, pid, build, tenant_head, control_head, seen_at)
     values (?, 'service', 'elsewhere', 17, '0.0.9', ?, ?, now() - ? * interval '1 second')`,
    [randomUUID(), head, head, age],
  );
}

/** The migration is not declared to be compatible. */
const controlMigration = `
import { Migration } from '@mikro-orm/migrations';

export class Notes extends Migration {
  override up(): void {
    this.addSql('create table if not exists notes (id integer)');
  }

  override down(): void {
    this.addSql('drop table notes');
  }
}
`;

function operator<Row extends object>(text: string, values: unknown[]): Promise<Row[]> {
  return withConnection(
    postgresUrl(),
    async client => (await client.query(text, values)).rows as Row[],
  );
}
