import { randomUUID } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { expect } from 'chai';
import { controlHead } from '../../../src/control/control-version.ts';
import { newProcess } from '../../../src/control/process-identity.ts';
import { eventually } from '../../support/eventually.ts';
import { makeNextBuild, type NextBuild } from '../../support/next-build.ts';
import { runCommand } from '../../support/run-command.ts';
import { controlSql, createWorld, sql, type World } from '../../support/world.ts';

describe('changes that running processes block', () => {
  let world: World;
  let next: NextBuild;

  before(async () => {
    [world, next] = await Promise.all([createWorld(), makeNextBuild()]);
    await eventually(async () => (await query('select from processes')).length === 1);
  });
  after(async () => {
    await world.close();
    await next.remove();
  });
  afterEach(async () => {
    await query('delete from processes where host = ?', ['elsewhere']);
  });

  const query = <Row extends object>(text: string, values: unknown[] = []) => controlSql<Row>(world, text, values);
  const tenant = (...args: string[]) => runCommand(next.file('scripts/tenant.ts'), args, world.environment);
  const versions = async () =>
    (await query<{ version: string }>('select schema_version as version from tenants order by slug')).map(
      ({ version }) => version,
    );
  const { host, pid, build } = newProcess('service');
  /** The process that serves the world. */
  const own = (head = next.currentHead) => ({ host, pid, build, head });

  /**
   * Registers a process of the service whose last exchange was some seconds ago. By default it is in the future, so
   * that the process counts as running for the whole test.
   */
  async function register(head: string | null, age = -60): Promise<void> {
    await query(
      `insert into processes (id, kind, host, pid, build, tenant_head, control_head, seen_at)
       values (?, 'service', 'elsewhere', 17, '0.0.9', ?, ?, now() - ? * interval '1 second')`,
      [randomUUID(), head, head, age],
    );
  }

  it('migrate is refused while a process serves a tenant that it could not serve afterwards', async () => {
    await register(next.head);
    const [{ code, stdout, stderr }, json] = await Promise.all([
      tenant('migrate', '--all'),
      tenant('migrate', 'acme', '--json'),
    ]);
    expect({ code, stdout }).to.deep.equal({ code: 1, stdout: '' });
    expect(stderr).to.equal(
      `1 running process would stop serving 2 tenants: ${host} pid ${pid} (build ${build} with ${next.currentHead}). ` +
        'Stop them first, or add --despite-running to go on; nothing was changed.\n',
    );
    const { error } = JSON.parse(json.stderr);
    expect(error).to.deep.include({ code: 'blocked', blockedBy: [{ ...own(), tenants: 1 }] });
    expect(await versions()).to.deep.equal([next.currentHead, next.currentHead]);
    expect(await query('select from migration_runs')).to.deep.equal([]);
  });

  it('migrate --dry-run names the processes that block the run', async () => {
    const [json, { code, stdout }] = await Promise.all([
      tenant('migrate', '--all', '--dry-run', '--json'),
      tenant('migrate', '--all', '--dry-run'),
    ]);
    expect(JSON.parse(json.stdout).blockedBy).to.deep.equal([{ ...own(), tenants: 2 }]);
    expect(code).to.equal(1);
    expect(stdout).to.match(/^-- Refused: 1 running process would stop serving 2 tenants: /);
    const despite = await tenant('migrate', '--all', '--dry-run', '--despite-running');
    expect([despite.code, despite.stdout.includes('Refused')]).to.deep.equal([0, false]);
  });

  it('a process of a build that registers no version blocks a migration that is not compatible', async () => {
    await register(null);
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
      runCommand(next.file('scripts/control.ts'), ['migrate', '--json', ...args], world.environment);
    const { code, stderr } = await migrate();
    expect([code, JSON.parse(stderr).error.blockedBy]).to.deep.equal([1, [own(head)]]);
    expect(stderr).to.include('1 running process could not start again: ');
    expect(await query('select from migrations where name > ?', [head])).to.deep.equal([]);

    expect(JSON.parse((await migrate('--despite-running')).stdout)).to.deep.equal({ applied: [nextHead] });
  });

  it('rollback is refused while a process runs that could not serve the tenant afterwards', async () => {
    await register(next.head);
    await tenant('migrate', 'acme', '--despite-running');
    const { code, stderr } = await tenant('rollback', 'acme', '--yes', '--json');
    const blocking = { host: 'elsewhere', pid: 17, build: '0.0.9', head: next.head, tenants: 1 };
    expect([code, JSON.parse(stderr).error.blockedBy]).to.deep.equal([1, [blocking]]);
    expect(await versions()).to.deep.equal([next.head, next.currentHead]);

    expect((await tenant('rollback', 'acme', '--yes', '--despite-running')).code).to.equal(0);
    expect(await versions()).to.deep.equal([next.currentHead, next.currentHead]);
    expect(await sql(world.acme, `select to_regclass('labels') as found`)).to.deep.equal([{ found: null }]);
  });

  it('a process without a heartbeat for 10 s, a command and an ended process block nothing', async () => {
    await world.service.stop();
    expect(await query('select from processes')).to.deep.equal([]);
    await register(next.currentHead, 11);
    await register(next.currentHead);
    await query(`update processes set kind = 'command' where seen_at > now()`);
    const { code, stderr } = await tenant('migrate', '--all');
    expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
    expect(await versions()).to.deep.equal([next.head, next.head]);
  });
});

/** It is not declared to be compatible. */
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
