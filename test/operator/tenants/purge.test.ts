import { randomUUID } from 'node:crypto';
import { mkdir, readdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import pg from 'pg';
import { readConfig } from '../../../src/config/config.ts';
import { runBackup } from '../../../src/operator/archives/run-backup.ts';
import { openTarget } from '../../../src/operator/archives/targets/open-target.ts';
import { purgeTenant } from '../../../src/operator/lifecycle/purge-tenant.ts';
import { changeState } from '../../../src/operator/tenants/transitions.ts';
import { lockSpaces } from '../../../src/postgres/advisory-locks.ts';
import { createDedicatedServer, type DedicatedServer } from '../../support/dedicated-server.ts';
import { eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { makeServerFolder } from '../../support/server-folder.ts';
import { verifyPurgeRecord } from '../../support/verify-purge-record.ts';

describe('purge', () => {
  const slugs = ['acme', 'globex', 'hooli', 'initech', 'oscorp', 'stark', 'tyrell', 'umbrella', 'vandelay', 'wonka'];
  let server: DedicatedServer;
  let archives: string;
  let environment: Record<string, string>;
  const databases = new Map<string, string>();

  before(async () => {
    [server, archives] = await Promise.all([createDedicatedServer(), makeServerFolder('archives')]);
    environment = { ...server.environment, BACKUP_TARGET: archives };
    for (const slug of slugs) databases.set(slug, (await server.provision(slug)).tenant.databaseName);
    expect((await run('backup', 'init')).code).to.equal(0);
    expect((await run('backup', 'run', '--all')).code).to.equal(0);
    for (const slug of slugs) await changeState(server.installation, slug, 'delete');
  });
  after(async () => {
    await server.close();
    await rm(archives, { recursive: true, force: true });
  });

  const run = (...args: string[]) => runCommand('scripts/tenant.ts', args, environment);

  /** Holds an advisory lock of the control database while `work` runs. */
  async function whileLocked<T>(space: number, key: number, work: () => Promise<T>): Promise<T> {
    const holder = new pg.Client(environment.DATABASE_URL);
    await holder.connect();
    await holder.query('select pg_advisory_lock($1, $2)', [space, key]);
    return work().finally(() => holder.end());
  }

  it('a purge that has begun can only be completed, and every other command is refused with the one that completes it', async () => {
    const killed = await purgeTenant(server.installation, 'acme', step => {
      if (step === 'forget') throw new Error('the run is killed here');
    }).catch(error => error.message);
    expect(killed).to.equal('the run is killed here');
    for (const args of [
      ['restore', 'acme'],
      ['restore', 'acme', '--lost'],
      ['restore', 'acme', '--archive', 'latest'],
      ['clone', 'acme', 'acme-copy'],
    ]) {
      const { code, stderr } = await run(...args);
      expect([code, stderr], args.join(' ')).to.deep.equal([
        1,
        'A purge of acme has begun, and can only be ended: bin/backoffice purge acme\n',
      ]);
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

  it('a purge during a backup run removes the key from the target, and one without the target signs its record when it is run again', async () => {
    const keys = async (slug: string): Promise<string[]> => {
      const guid = guids.get(slug) ?? '';
      return (await readdir(join(archives, 'keys', guid))).map(name => name.slice(0, name.indexOf('-')));
    };
    const guids = new Map(
      (await server.control<{ slug: string; guid: string }>('select slug, guid from tenants')).map(
        ({ slug, guid }) => [slug, guid] as const,
      ),
    );
    const [key = ''] = await keys('globex');
    const isSigned = () =>
      server.control<{ signed: boolean }>(
        `select signature is not null as signed from purged_tenants where slug = 'globex'`,
      );
    await rename(archives, `${archives}-away`);
    const first = await run('purge', 'globex', '--yes');
    expect([first.code, first.stdout]).to.deep.equal([1, '']);
    expect(first.stderr).to.match(/is still in the backup target .*End the purge: bin\/backoffice purge globex\n$/);
    await rename(`${archives}-away`, archives);
    expect(await keys('globex')).to.deep.equal([key]);
    expect(await isSigned()).to.deep.equal([{ signed: false }]);

    const second = await whileLocked(lockSpaces.backup, 0, () => run('purge', 'globex', '--yes', '--json'));
    expect(second.code, second.stderr).to.equal(0);
    const { record, signature } = JSON.parse(second.stdout);
    expect(JSON.parse(record)).to.deep.include({ keyFingerprint: key });
    expect(verifyPurgeRecord(record, signature)).to.equal(true);
    expect(await keys('globex')).to.deep.equal([]);
    expect(await isSigned()).to.deep.equal([{ signed: true }]);
    expect((await run('purge', 'globex', '--yes')).stderr).to.include('There is no tenant globex');
  });

  /** Removes the keys of a tenant from the target. @returns their folder */
  async function removeKeys(slug: string): Promise<string> {
    const [row] = await server.control<{ guid: string }>(`select guid from tenants where slug = '${slug}'`);
    const folder = join(archives, 'keys', row?.guid ?? '');
    await rm(folder, { recursive: true });
    return folder;
  }

  it('a purge removes also a key that a killed run has begun to write to the target', async () => {
    const folder = await removeKeys('stark');
    await mkdir(folder);
    await writeFile(join(folder, `key.json.${randomUUID()}.unfinished`), '{}');
    const { code, stderr } = await run('purge', 'stark', '--yes');
    expect(code, stderr).to.equal(0);
    expect(await readdir(folder)).to.deep.equal([]);
  });

  it('a purge while a run writes the key of the tenant does not stop the run, and leaves no key', async () => {
    const folder = await removeKeys('tyrell');
    const { backup } = readConfig(environment);
    const target = openTarget(backup);
    const write = target.write.bind(target);
    target.write = (name, bytes) =>
      write(
        name,
        (async function* () {
          yield* bytes;
          if (join(archives, name).startsWith(folder)) await run('purge', 'tyrell', '--yes');
        })(),
      );
    const { failed } = await runBackup(server.installation, target, { concurrency: 1, keep: backup.keep });
    expect(failed).to.equal(0);
    expect((await run('show', 'tyrell')).stderr).to.include('There is no tenant tyrell');
    expect(await readdir(folder)).to.deep.equal([]);
  });

  it('a tenant that is purged during a backup run fails the archive of no other tenant', async () => {
    for (const slug of ['initech', 'wonka'])
      await server.sql(`insert into currencies (code, name) values ('USD', 'Dollar')`, databases.get(slug));
    const { backup } = readConfig(environment);
    const target = openTarget(backup);
    const list = target.list.bind(target);
    let isPurged = false;
    target.list = async function* (prefix) {
      // The run has read the tenants, and not yet their keys.
      if (prefix === 'keys/' && !isPurged) isPurged = (await run('purge', 'wonka', '--yes')).code === 0;
      yield* list(prefix);
    };
    const { failed, archived } = await runBackup(server.installation, target, {
      slugs: undefined,
      concurrency: 1,
      keep: backup.keep,
    });
    expect({ isPurged, failed, archived }).to.deep.equal({ isPurged: true, failed: 0, archived: 2 });
  });

  it('a purge ends only when its key is removed from every target with archives of the tenant, and names a lost one', async () => {
    const other = await makeServerFolder('other');
    const elsewhere = { ...environment, BACKUP_TARGET: other };
    const purge = (slug: string, settings: Record<string, string>, ...options: string[]) =>
      runCommand('scripts/tenant.ts', ['purge', slug, '--yes', ...options], settings);
    const signed = async (slug: string) => {
      const [row] = await server.control<{ record: string; isSigned: boolean }>(
        `select record, signature is not null as "isSigned" from purged_tenants where slug = '${slug}'`,
      );
      const { keyRemovedFrom, keyLeftIn } = JSON.parse(row?.record ?? '{}');
      return { isSigned: row?.isSigned, keyRemovedFrom, keyLeftIn };
    };
    const [hooli] = await server.control<{ guid: string }>(`select guid from tenants where slug = 'hooli'`);
    const keys = () => readdir(join(archives, 'keys', hooli?.guid ?? ''));
    expect((await runCommand('scripts/tenant.ts', ['backup', 'init'], elsewhere)).code).to.equal(0);
    await rename(archives, `${archives}-away`);
    expect((await purge('hooli', environment)).code).to.equal(1);
    const wrong = await purge('hooli', elsewhere);
    expect([wrong.code, wrong.stdout, wrong.stderr]).to.deep.equal([
      1,
      '',
      `hooli is removed, and folder ${other} has no key of its archives, but folder ${archives} may still have it. Run ` +
        'the purge again with that BACKUP_TARGET: bin/backoffice purge hooli (if it does not exist any more: ' +
        '--lost-targets).\n',
    ]);
    const { BACKUP_TARGET: _, ...without } = environment;
    const none = await purge('hooli', without);
    expect([none.code, none.stdout]).to.deep.equal([1, '']);
    expect(none.stderr).to.match(/^hooli is removed, but the key .* \(BACKUP_TARGET is not set/);
    await rename(`${archives}-away`, archives);
    expect(await keys()).to.have.length(1);
    expect((await signed('hooli')).isSigned).to.equal(false);

    const ended = await purge('hooli', environment);
    expect([ended.code, ended.stderr]).to.deep.equal([0, '']);
    expect(await keys()).to.deep.equal([]);
    expect(await signed('hooli')).to.deep.equal({
      isSigned: true,
      keyRemovedFrom: [`folder ${other}`, `folder ${archives}`],
      keyLeftIn: [],
    });

    const lost = await purge('vandelay', elsewhere, '--lost-targets');
    expect([lost.code, lost.stderr]).to.deep.equal([0, '']);
    expect(lost.stdout).to.match(/is removed from folder \S+other\S+\. folder \S+archives\S+ may still have it: /);
    expect(await signed('vandelay')).to.deep.equal({
      isSigned: true,
      keyRemovedFrom: [`folder ${other}`],
      keyLeftIn: [`folder ${archives}`],
    });
    await rm(other, { recursive: true });
  });

  it('a purge during a restore waits for it, and drops the restored database too', async () => {
    const holder = new pg.Client(server.url);
    await holder.connect();
    await holder.query('begin; lock table pg_database in share mode');
    const restoring = run('restore', 'initech', '--archive', 'latest');
    await eventually(() => isWaiting('create database'));
    const placed = await databasesOf('initech');
    expect(placed).to.have.length(2);
    const purging = purgeTenant(server.installation, 'initech');
    await eventually(() => isWaiting('pg_advisory_lock'));
    await holder.end();
    expect(await restoring).to.include({ code: 0, stderr: '' });
    await purging;
    expect(await databasesOf('initech')).to.deep.equal([]);
    const names = placed.map(({ name }) => `'${name}'`).join();
    expect(await server.sql(`select from pg_database where datname in (${names})`)).to.deep.equal([]);
    expect(await server.sql(`select from pg_roles where rolname in (${names})`)).to.deep.equal([]);
  });

  it('a clone whose source is purged meanwhile fails with one sentence that names the next command', async () => {
    const holder = new pg.Client(Object.assign(new URL(server.url), { pathname: databases.get('umbrella') }).href);
    holder.on('error', () => {});
    await holder.connect();
    await holder.query('begin; lock table currencies in access exclusive mode');
    const cloning = run('clone', 'umbrella', 'umbrella-copy');
    await eventually(() => isWaiting());
    await purgeTenant(server.installation, 'umbrella');
    await holder.end().catch(() => {});
    const { code, stderr } = await cloning;
    expect([code, stderr]).to.deep.equal([
      1,
      'umbrella was purged meanwhile: nothing is left of it to copy. Remove what was begun: bin/backoffice purge umbrella-copy\n',
    ]);
    const removed = await run('purge', 'umbrella-copy', '--yes');
    expect(removed.code, removed.stderr).to.equal(0);
  });

  /** True while a session of the server waits for a lock, with a statement that contains this text. */
  async function isWaiting(text = ''): Promise<boolean> {
    const waiting = `select from pg_stat_activity where wait_event_type = 'Lock' and query like '%${text}%'`;
    return (await server.sql(waiting)).length > 0;
  }

  const databasesOf = (slug: string): Promise<{ name: string }[]> =>
    server.control(
      `select d.database_name as name from tenant_databases d join tenants t on t.id = tenant_id where slug = '${slug}'`,
    );
});
