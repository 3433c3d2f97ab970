import { rm } from 'node:fs/promises';
import { expect } from 'chai';
import pg from 'pg';
import { purgeTenant } from '../../../src/operator/lifecycle/purge-tenant.ts';
import { changeState } from '../../../src/operator/registry/transitions.ts';
import { backupSettings } from '../../support/backup-settings.ts';
import { createDedicatedServer, type DedicatedServer } from '../../support/dedicated-server.ts';
import { eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { makeServerFolder } from '../../support/server-folder.ts';

describe('purge', () => {
  const slugs = ['acme', 'initech', 'oscorp', 'umbrella'];
  let server: DedicatedServer;
  let archives: string;
  let environment: Record<string, string>;
  const databases = new Map<string, string>();

  before(async () => {
    [server, archives] = await Promise.all([createDedicatedServer(), makeServerFolder('archives')]);
    environment = { ...server.environment, ...(await backupSettings(archives)) };
    for (const slug of slugs) {
      databases.set(slug, (await server.provision(slug)).tenant.databaseName);
    }
    expect((await run('backup', 'init')).code).to.equal(0);
    expect((await run('backup', 'run', '--all')).code).to.equal(0);
    for (const slug of slugs) await changeState(server.installation, slug, 'delete');
  });
  after(async () => {
    await server.close();
    await rm(archives, { recursive: true, force: true });
  });

  const run = (...args: string[]) => runCommand('scripts/tenant.ts', args, environment);

  it('a purge that has begun can only be completed, and every other command is refused with the one that completes it', async () => {
    const killed = await purgeTenant(server.installation, 'acme', {
      keepsArchives: false,
      onStep: step => {
        if (step === 'forget') throw new Error('the run is killed here');
      },
    }).catch(error => error.message);
    expect(killed).to.equal('the run is killed here');

    for (const args of [
      ['undelete', 'acme'],
      ['restore', 'acme', '--lost'],
      ['restore', 'acme', '--archive', 'latest'],
      ['restore', 'acme', '--archive', 'latest', '--dry-run'],
      ['restore', 'swap', 'acme'],
      ['restore', 'swap', 'acme', '--dry-run'],
      ['restore', 'back', 'acme'],
      ['restore', 'back', 'acme', '--dry-run'],
      ['move', 'acme', '--to', 'another'],
      ['move', 'acme', '--to', 'another', '--dry-run'],
      ['clone', 'acme', 'acme-copy'],
      ['clone', 'acme', 'acme-copy', '--dry-run'],
    ]) {
      const { code, stderr } = await run(...args);
      expect(code, args.join(' ')).to.equal(1);
      expect(stderr, args.join(' ')).to.equal(
        'A purge of acme has begun, and can only be ended: bin/backoffice purge acme\n',
      );
    }

    const doctor = JSON.parse((await run('doctor', '--json')).stdout);
    const found = doctor.findings.find(({ tenant }: { tenant: string }) => tenant === 'acme');
    expect(found.remedy).to.equal('End the purge: bin/backoffice purge acme');

    const { code, stderr } = await run('purge', 'acme', '--yes');
    expect(code, stderr).to.equal(0);
    expect((await run('show', 'acme')).stderr).to.include('There is no tenant acme');
  });

  it('a purge leaves a login role that has rights elsewhere without its password, and says where they are', async () => {
    const role = databases.get('oscorp') ?? '';
    await server.sql('create database reports');
    await server.sql(`create table figures (); grant select on figures to "${role}"`, 'reports');

    const { code, stderr } = await run('purge', 'oscorp', '--yes');

    expect(code, stderr).to.equal(0);
    expect(stderr).to.include(
      `Login role ${role} on server default is left, without a password: somebody has granted it rights in reports.`,
    );
    const [left] = await server.sql(
      `select rolcanlogin as login, rolpassword is null as empty from pg_authid where rolname = '${role}'`,
    );
    expect(left).to.deep.equal({ login: false, empty: true });
    await server.sql('drop database reports');
    await server.sql(`drop role "${role}"`);
  });

  it('a purge during a restore waits for it, and drops the restored database too', async () => {
    const holder = new pg.Client(server.url);
    await holder.connect();
    await holder.query('begin; lock table pg_database in share mode');

    const restoring = run('restore', 'initech', '--archive', 'latest');
    await eventually(() => isWaiting('create database'));
    const placed = await databasesOf('initech');
    expect(placed).to.have.length(2);

    const purging = purgeTenant(server.installation, 'initech', { keepsArchives: true });
    await eventually(() => isWaiting('pg_advisory_lock'));
    await holder.end();

    expect(await restoring).to.include({ code: 0, stderr: '' });
    await purging;
    expect(await databasesOf('initech')).to.deep.equal([]);

    const names = placed.map(({ name }) => `'${name}'`).join();
    expect(await server.sql(`select from pg_database where datname in (${names})`)).to.deep.equal(
      [],
    );
    expect(await server.sql(`select from pg_roles where rolname in (${names})`)).to.deep.equal([]);
  });

  it('a clone whose source is purged meanwhile fails with one sentence that names the next command', async () => {
    const holder = new pg.Client(
      Object.assign(new URL(server.url), { pathname: databases.get('umbrella') }).href,
    );
    holder.on('error', () => {});
    await holder.connect();
    await holder.query('begin; lock table currencies in access exclusive mode');

    const cloning = run('clone', 'umbrella', 'umbrella-copy');
    await eventually(() => isWaiting());
    await purgeTenant(server.installation, 'umbrella', { keepsArchives: true });
    await holder.end().catch(() => {});

    const { code, stderr } = await cloning;
    expect(code, stderr).to.equal(1);
    expect(stderr).to.equal(
      'umbrella was purged meanwhile: nothing is left of it to copy. Remove what was begun: bin/backoffice purge umbrella-copy\n',
    );

    const removed = await run('purge', 'umbrella-copy', '--yes');
    expect(removed.code, removed.stderr).to.equal(0);
  });

  /**
   * True while a session of the server waits for a lock, with a statement that contains this
   * text.
   */
  async function isWaiting(text = ''): Promise<boolean> {
    const waiting = `select from pg_stat_activity where wait_event_type = 'Lock' and query like '%${text}%'`;
    return (await server.sql(waiting)).length > 0;
  }

  const databasesOf = (slug: string): Promise<{ name: string }[]> =>
    server.control(
      `select d.database_name as name from tenant_databases d join tenants t on t.id = tenant_id where slug = '${slug}'`,
    );
});
