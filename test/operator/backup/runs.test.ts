import { mkdir, mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { expect } from 'chai';
import { type Installation, openInstallation } from '../../../src/control/installation.ts';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { readConfig } from '../../../src/lib/config/config.ts';
import { lockSpaces } from '../../../src/lib/postgres/advisory-locks.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { withBackupLock } from '../../../src/operator/backup/backup-lock.ts';
import { compareArchives } from '../../../src/operator/backup/check/verify-archives.ts';
import { listArchives } from '../../../src/operator/backup/list-archives.ts';
import { pruneArchives } from '../../../src/operator/backup/prune-archives.ts';
import { planBackup, type WriteArchive } from '../../../src/operator/backup/run-backup.ts';
import {
  createArchiveName,
  fingerprintRecipients,
  parseArchiveName,
} from '../../../src/operator/backup/target/archive-name.ts';
import { openTarget } from '../../../src/operator/backup/target/open-target.ts';
import type { Target } from '../../../src/operator/backup/target/target.ts';
import { initTarget } from '../../../src/operator/backup/writer.ts';
import { readArchiveFacts } from '../../../src/operator/doctor/check-archives.ts';
import { ArchiveFacts } from '../../support/archive-facts.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { writeRecorded } from '../../support/recorded-archive.ts';
import { startS3Server } from '../../support/s3-server.ts';
import { keepAll, recipients, runSmall, writeSmall } from '../../support/small-archives.ts';
import { use, useFolder } from '../../support/use.ts';

const allArchived = ['acme: archived', 'globex: archived', 'null: archived'];
const noneChanged = ['acme: unchanged', 'globex: unchanged', 'null: archived'];

describe('backup runs by the list of archives', () => {
  const server = use(createDedicatedServer);
  const facts = new ArchiveFacts(server);
  const s3 = use(() => startS3Server('backups', 2));
  const folder = useFolder();
  let target: Target;
  let bucket: Target;
  let installation: Installation;

  const open = (settings: Record<string, string>): Promise<Target> =>
    openTarget(readConfig(settings).backup);
  const init = (at: Target, by: Installation = installation, takeOver = false) =>
    withBackupLock(by.controlUrl, 'archives', control =>
      initTarget(control, at, { takeOver, isDryRun: false }),
    );
  const refusalOf = (work: Promise<unknown>): Promise<string> =>
    work.then(
      () => 'no error',
      (error: Error) => error.message,
    );
  const namesIn = async (at: Target = target): Promise<string[]> =>
    (await Array.fromAsync(at.list(''), ({ name }) => name))
      .filter(name => parseArchiveName(name))
      .sort();
  const rowOf = async (slug: string) =>
    (
      await server.control<{ guid: string; archive: string | null }>(
        `select guid, (select a.name from archives a
                        where target = backup_target and tenant_guid = guid and state = 'complete'
                        order by archived_at desc limit 1) as archive
           from tenants, installation where slug = '${slug}'`,
      )
    )[0] ?? { guid: '', archive: null };

  /** Copies the control database, as a clone of the machine would, and opens the copy. */
  const copyControl = async (name: string): Promise<Installation> => {
    await installation.close();
    await server.sql(
      `select pg_terminate_backend(pid) from pg_stat_activity where datname = 'office'`,
    );
    await server.sql(`create database ${name} template office`);
    const { DATABASE_URL = '', MASTER_KEY = '' } = server.environment;
    installation = await openInstallation(readConfig(server.environment));
    return openInstallation(
      readConfig({ DATABASE_URL: databaseUrl(DATABASE_URL, name), MASTER_KEY }),
    );
  };

  before(async () => {
    for (const slug of ['acme', 'globex']) await server.provision(slug);
    installation = await openInstallation(readConfig(server.environment));
    target = await open({ BACKUP_TARGET: folder });
    bucket = await open(s3.environment);
  });
  beforeEach(async () => {
    await init(target, installation, true);
    await runSmall(installation, target);
  });
  after(() => installation.close());

  it('a run writes nothing to a target that nobody has initialized, and init is done once', async () => {
    const path = await mkdtemp(`${folder}-new-`);
    const empty = await open({ BACKUP_TARGET: path });
    const other = await startS3Server('backups');

    expect(await refusalOf(runSmall(installation, empty))).to.include(
      'is no backup target yet, or is not mounted',
    );
    expect(await refusalOf(runSmall(installation, await open(other.environment)))).to.match(
      /^s3:\S+ is no target of this installation yet: it has no \S+\/writer\.json\. .* bin\/backoffice backup init$/,
    );
    expect(await readdir(path)).to.deep.equal([]);
    expect(other.store.objects.size).to.equal(0);

    expect(await init(empty)).to.include({ state: 'new' });
    expect(await init(empty)).to.include({ state: 'unchanged' });
    await other.close();
    await rm(path, { recursive: true });
  });

  it('each tenant is archived under a name that says whose, when and for whom; an unchanged one is skipped', async () => {
    for (const slug of ['acme', 'globex']) await facts.write(slug);
    const before = await namesIn();

    const first = await runSmall(installation, target);
    expect(first.states).to.deep.equal(allArchived);
    const { guid, archive } = await rowOf('acme');
    const [id] = await server.control<{ id: string }>('select id from installation');
    const named = parseArchiveName(archive ?? '');
    expect(named).to.include({
      installation: id?.id,
      tenant: guid,
      recipients: fingerprintRecipients(recipients),
    });
    expect(Math.abs(Date.now() - (named?.time.getTime() ?? 0))).to.be.below(60_000);

    const second = await runSmall(installation, target);
    expect(second.states).to.deep.equal(noneChanged);

    await facts.write('globex');
    const planned = await planBackup(installation, target, { slugs: undefined, recipients });
    expect(planned.map(({ slug, isArchived }) => [slug, isArchived])).to.deep.equal([
      ['acme', false],
      ['globex', true],
    ]);
    const third = await runSmall(installation, target);
    expect(third.states).to.deep.equal(['acme: unchanged', 'globex: archived', 'null: archived']);
    expect(await namesIn()).to.have.length(before.length + 6);
  });

  it('analyze, reindex, comment and truncate cost a tenant one more archive, and setval alone is not seen', async () => {
    const database = await server.databaseOf('acme');
    await server.sql('create table scratch (id int)', database);
    const statements = {
      archived: [
        'analyze',
        'reindex table currencies',
        `comment on table scratch is 'of an operator'`,
        'truncate scratch',
      ],
      unchanged: [`select setval('currencies_id_seq', 5000)`, 'select 1'],
    };

    for (const [state, texts] of Object.entries(statements)) {
      for (const text of texts) {
        await runSmall(installation, target);
        expect((await runSmall(installation, target)).states).to.include('acme: unchanged');
        await server.sql(text, database);

        expect((await runSmall(installation, target)).states, text).to.include(`acme: ${state}`);
      }
    }
  });

  it('a tenant whose last archive was deleted, cut or replaced by another size is archived again in the next run', async () => {
    const { archive } = await rowOf('acme');

    await rm(join(folder, archive ?? ''));
    const deleted = await runSmall(installation, target);
    expect(deleted.states).to.deep.equal(['acme: archived', 'globex: unchanged', 'null: archived']);
    expect(deleted.lost).to.deep.equal(['acme']);
    expect(deleted.failed).to.equal(0);

    const again = await rowOf('acme');
    await writeFile(join(folder, again.archive ?? ''), 'cut');
    const cut = await runSmall(installation, target);
    expect(cut.states).to.include('acme: archived');
    expect((await runSmall(installation, target)).states).to.deep.equal(noneChanged);
  });

  it('a database that is put back after another one was archived is archived again, so that the newest archive has its data', async () => {
    const before = await rowOf('acme');
    await facts.write('acme');
    await runSmall(installation, target);
    const other = await rowOf('acme');
    expect(other.archive).not.to.equal(before.archive);
    // The newest archive is of the database that is put away, and its counters are equal.
    await server.control(
      `update archives set database_id = database_id + 1000000 where name = '${other.archive}'`,
    );

    expect((await runSmall(installation, target)).states).to.include('acme: archived');
    expect((await runSmall(installation, target)).states).to.include('acme: unchanged');
  });

  it('a rule of the bucket that removes old archives costs an idle tenant a new archive, and no failure', async () => {
    await init(bucket, installation, true);
    for (const slug of ['acme', 'globex']) await facts.write(slug);
    expect((await runSmall(installation, bucket)).states).to.deep.equal(allArchived);
    for (const key of s3.store.objects.keys()) {
      if (key.includes('/tenants/')) s3.store.objects.delete(key);
    }

    const run = await runSmall(installation, bucket);

    expect(run.states).to.deep.equal(allArchived);
    expect(run.lost).to.deep.equal(['acme', 'globex']);
    expect(run.failed).to.equal(0);
  });

  it('other recipients have every tenant archived anew in the next run', async () => {
    const others = { recipients: [...recipients, `age1${'p'.repeat(58)}`] };

    expect((await runSmall(installation, target, others)).states).to.deep.equal(allArchived);
    expect((await runSmall(installation, target, others)).states).to.deep.equal(noneChanged);
    expect(
      (await runSmall(installation, target, { recipients: others.recipients.toReversed() })).states,
    ).to.deep.equal(noneChanged);
    expect((await runSmall(installation, target)).states, 'the former ones again').to.deep.equal(
      allArchived,
    );
  });

  it('an archive that fails after its last byte is removed at once, the next run makes another one, and no unfinished file is left', async () => {
    await facts.write('acme');
    const killed: WriteArchive = async (order, store) => {
      const result = await writeSmall(order, store);
      if (order.tenant?.slug === 'acme') {
        throw new Error('the connection to the database is lost after the last byte');
      }
      return result;
    };
    const before = await namesIn();
    const failed = await runSmall(installation, target, {}, killed);
    expect(failed.states).to.include('acme: failed');
    expect(await namesIn()).to.have.length(before.length + 1);
    const { guid } = await rowOf('acme');
    const [id] = await server.control<{ id: string }>('select id from installation');
    const left = join(folder, id?.id ?? '', 'tenants', guid, 'x.tar.zst.age.1.unfinished');
    await writeFile(left, 'half');

    const next = await runSmall(installation, target);

    expect(next.states).to.deep.equal(['acme: archived', 'globex: unchanged', 'null: archived']);
    expect(await readdir(join(left, '..'))).not.to.include('x.tar.zst.age.1.unfinished');
  });

  it('an archive that fails in the middle leaves no object, fails its tenant alone, and the run ends failed', async () => {
    await facts.write('acme');
    await facts.write('globex');
    const failing: WriteArchive = async (order, store) => {
      if (order.tenant?.slug !== 'acme') return writeSmall(order, store);
      async function* body(): AsyncGenerator<Buffer> {
        yield Buffer.alloc(1_000);
        throw new Error('the connection to the database is lost');
      }
      return {
        rows: 0,
        leftOut: [],
        numbers: new Map(),
        schemaVersion: '0001-first-schema',
        unpackedBytes: 0,
        written: await store(Readable.from(body())),
      };
    };
    const before = await namesIn();

    const run = await runSmall(installation, target, {}, failing);

    expect(run.states).to.deep.equal(['acme: failed', 'globex: archived', 'null: archived']);
    expect(run.outcomes.find(({ slug }) => slug === 'acme')?.error).to.equal(
      'the connection to the database is lost',
    );
    const [row] = await server.control<{ state: string }>(
      'select state from backup_runs order by id desc limit 1',
    );
    expect(row).to.deep.equal({ state: 'failed' });
    expect(await namesIn()).to.have.length(before.length + 2);
    await runSmall(installation, target);
  });

  it('a tenant whose newest archive is from the future fails alone, and the message names the object and both clocks', async () => {
    await facts.write('acme');
    await facts.write('globex');
    const { archive } = await rowOf('acme');
    await server.control(
      `update archives set archived_at = now() + interval '1 hour' where name = '${archive}'`,
    );

    const run = await runSmall(installation, target);

    expect(run.states).to.deep.equal(['acme: failed', 'globex: archived', 'null: archived']);
    expect(run.outcomes.find(({ slug }) => slug === 'acme')?.error)
      .to.include(`its newest archive is from the future: ${archive}. The server of the control`)
      .and.match(/says it is \S+Z, the target \S+Z: set its clock/);
    await server.control(
      `update archives set archived_at = now() - interval '1 minute' where name = '${archive}'`,
    );
    expect((await runSmall(installation, target)).states).to.include('acme: archived');
  });

  it('of two control databases of an installation, the one that runs second is refused, until it takes over', async () => {
    await runSmall(installation, target);
    const copy = await copyControl('office_clone');
    await runSmall(installation, target);
    const before = await namesIn();
    const refused =
      /^Another control database of this installation writes to .*bin\/backoffice backup init --take-over$/;

    expect(await refusalOf(runSmall(copy, target))).to.match(refused);
    expect(await refusalOf(pruneArchives(copy, target, keepAll))).to.match(refused);
    expect(await refusalOf(init(target, copy))).to.match(refused);
    expect(await namesIn()).to.deep.equal(before);

    expect(await init(target, copy, true)).to.include({ state: 'taken over' });
    expect((await runSmall(copy, target)).states).to.include('null: archived');
    expect(await refusalOf(runSmall(installation, target))).to.match(refused);

    await init(target, installation, true);
    await runSmall(installation, target);
    await copy.close();
    await server.sql('drop database office_clone with (force)');
  });

  it('a run that is killed in the middle leaves the target to its control database, and to no copy of it from before', async () => {
    const copy = await copyControl('office_clone');
    const killed: WriteArchive = () => Promise.reject(new Error('unused'));
    // The process ends between its claim and its first archive.
    const stopped = new Error('as if killed');
    const dying = new Proxy(target, {
      get: (object, name) => {
        if (name === 'removeUnfinished') return () => Promise.reject(stopped);
        const value = Reflect.get(object, name);
        return typeof value === 'function' ? value.bind(object) : value;
      },
    });
    expect(await refusalOf(runSmall(installation, dying, {}, killed))).to.equal('as if killed');
    const [row] = await server.control<{ next: string | null }>(
      'select next_target_writer as next from installation',
    );
    expect(row?.next).not.to.equal(null);

    expect(await refusalOf(runSmall(copy, target))).to.include(
      'Another control database of this installation',
    );

    expect((await runSmall(installation, target)).states).to.include('null: archived');
    await copy.close();
    await server.sql('drop database office_clone with (force)');
  });

  it('a run that was killed before it replaced the file of the writer can be repeated, by one of two copies of its control database and not by the other', async () => {
    const dying = new Proxy(target, {
      get: (object, name) => {
        if (name === 'replaceDocument') return () => Promise.reject(new Error('as if killed'));
        const value = Reflect.get(object, name);
        return typeof value === 'function' ? value.bind(object) : value;
      },
    });
    expect(await refusalOf(runSmall(installation, dying))).to.equal('as if killed');
    const copy = await copyControl('office_clone');

    expect((await runSmall(installation, target)).states).to.include('null: archived');
    expect(await refusalOf(runSmall(copy, target))).to.include(
      'Another control database of this installation',
    );

    await copy.close();
    await server.sql('drop database office_clone with (force)');
  });

  it('a folder that was unmounted is refused, and the empty folder below it gets no file', async () => {
    await rename(folder, `${folder}-mounted`);
    await mkdir(folder);

    expect(await refusalOf(runSmall(installation, target))).to.include('or is not mounted');
    expect(await refusalOf(listArchives(installation, target, undefined, recipients))).to.include(
      'or is not mounted',
    );
    expect(await readdir(folder)).to.deep.equal([]);

    await rm(folder, { recursive: true });
    await rename(`${folder}-mounted`, folder);
    expect((await runSmall(installation, target)).states).to.deep.equal(noneChanged);
  });

  it('a folder that is unmounted in the middle of a run fails what is not written yet, and the folder below it gets no file', async () => {
    for (const slug of ['acme', 'globex']) await facts.write(slug);
    const unmounting: WriteArchive = async (order, store) => {
      if (order.tenant?.slug === 'acme') {
        await rename(folder, `${folder}-mounted`);
        await mkdir(folder);
      }
      return writeSmall(order, store);
    };

    const run = await runSmall(installation, target, { concurrency: 1 }, unmounting);

    expect(run.states).to.deep.equal(['acme: failed', 'globex: failed', 'null: failed']);
    expect(run.outcomes[0]?.error).to.include('or is not mounted');
    expect(await readdir(folder)).to.deep.equal([]);
    await rm(folder, { recursive: true });
    await rename(`${folder}-mounted`, folder);
    expect((await runSmall(installation, target)).states).to.deep.equal(allArchived);
  });

  it('a bucket that forbids deletion keeps every archive: the run archives all, names what stays, and later ones go on', async () => {
    await init(bucket, installation, true);
    const keep = { allMs: 0, hours: 0, days: 0, weeks: 0, months: 0 };
    await runSmall(installation, bucket);
    s3.faultOf = request =>
      request.startsWith('DELETE')
        ? { kind: 'status', status: 403, code: 'AccessDenied' }
        : undefined;

    for (const _ of [1, 2]) {
      for (const slug of ['acme', 'globex']) await facts.write(slug);
      const run = await runSmall(installation, bucket, { keep });
      expect(run.states).to.deep.equal(allArchived);
      expect(run.failed).to.equal(0);
      expect(run.removed).to.equal(0);
      expect(run.notRemoved.length).to.be.at.least(3);
      expect(run.notRemoved[0]?.error).to.include('403 AccessDenied');
    }
    const [row] = await server.control<{ state: string; left: number }>(
      'select state, not_removed as left from backup_runs order by id desc limit 1',
    );
    expect(row?.state, 'the archives are there').to.equal('succeeded');
    expect(row?.left).to.be.at.least(6);

    const all = await runSmall(installation, bucket);
    expect(all.notRemoved, 'all are kept, and so is what was not removed').to.deep.equal([]);

    s3.faultOf = () => undefined;
    const freed = await pruneArchives(installation, bucket, keep);
    expect(freed.notRemoved).to.deep.equal([]);
    expect(await namesIn(bucket)).to.have.length(3);
  });

  it('a store that shows the file of the writer late fails the run with that reason, and the next run goes on', async () => {
    await init(bucket, installation, true);
    const [key = '', former] =
      [...s3.store.objects].find(([name]) => name.endsWith('/writer.json')) ?? [];
    s3.store.lateBytesOf = name => (name === key ? former : undefined);

    const late = await refusalOf(runSmall(installation, bucket));
    s3.store.lateBytesOf = () => undefined;

    expect(late).to.match(/still has the former \S+\/writer\.json, which was replaced: try again/);
    expect((await runSmall(installation, bucket)).states).to.include('null: archived');
  });

  it('a run removes nothing more once its lock is lost, or another control database has taken over', async () => {
    const { guid } = await rowOf('acme');
    let old: string[] = [];
    const writeOld = async (): Promise<void> => {
      old = [];
      for (let hours = 0; hours < 24; hours++) {
        const time = new Date(Date.now() - (hours + 2_400) * 3_600_000);
        old.push(await writeRecorded(installation.controlUrl, target, { tenant: guid, time }));
      }
    };
    const keep = { allMs: 3_600_000, hours: 0, days: 0, weeks: 0, months: 0 };
    /** A target in which something happens before the first removal. */
    const beforeRemoval = (happens: () => Promise<unknown>): Target => {
      let happened: Promise<unknown> | undefined;
      return new Proxy(target, {
        get: (object, name) => {
          const value = Reflect.get(object, name);
          if (name !== 'remove') return typeof value === 'function' ? value.bind(object) : value;
          return async (archive: string) => {
            happened ??= happens();
            await happened;
            return object.remove(archive);
          };
        },
      });
    };
    const leftOfOld = async (): Promise<number> => {
      const left = await namesIn();
      return old.filter(name => left.includes(name)).length;
    };
    const begun = 8;

    await writeOld();
    const endLock = () =>
      server.control(
        `select pg_terminate_backend(pid, 10000) from pg_locks
          where locktype = 'advisory' and objid = 0 and classid = ${lockSpaces.backup} and database = (
            select oid from pg_database where datname = 'office')`,
      );
    expect(await refusalOf(pruneArchives(installation, beforeRemoval(endLock), keep))).not.to.equal(
      'no error',
    );
    expect(await leftOfOld(), 'lost lock').to.be.at.least(old.length - begun);

    await writeOld();
    const copy = await copyControl('office_clone');
    expect(
      await refusalOf(
        pruneArchives(
          installation,
          beforeRemoval(() => init(target, copy, true)),
          keep,
        ),
      ),
    ).to.include('Another control database of this installation writes to');
    expect(await leftOfOld(), 'taken over').to.be.at.least(old.length - begun);

    await copy.close();
    await server.sql('drop database office_clone with (force)');
    await init(target, installation, true);
    await pruneArchives(installation, target, keep);
    expect(await leftOfOld()).to.equal(0);
  });

  it('an archive that a run removes while verify reads the others is no fault, and one that a tenant needs is', async () => {
    await facts.write('acme');
    await runSmall(installation, target);
    const { archive: former } = await rowOf('acme');
    await facts.write('acme');
    await runSmall(installation, target);
    const { archive: last } = await rowOf('acme');
    const removing = (gone: string | null): Target =>
      new Proxy(target, {
        get: (object, name) => {
          const value = Reflect.get(object, name);
          if (name !== 'read') return typeof value === 'function' ? value.bind(object) : value;
          return async (archive: string) => {
            if (archive === gone && gone === former) {
              await server.control(
                `update archives set state = 'removing' where name = '${archive}'`,
              );
            }
            if (archive === gone) await object.remove(archive);
            return object.read(archive);
          };
        },
      });
    const faults = async (gone: string | null): Promise<string[]> => {
      const checks = await compareArchives(installation, removing(gone), undefined, {});
      expect(checks.map(({ archive }) => archive)).to.include(gone);
      return checks
        .filter(({ fault }) => fault !== null)
        .map(({ archive, fault }) => `${archive}: ${fault}`);
    };

    expect(await faults(former)).to.deep.equal([]);
    expect(await faults(last)).to.deep.equal([`${last}: missing`]);
    await runSmall(installation, target);
  });

  it('objects of tenants that the control database does not know are listed and named by doctor, and never pruned', async () => {
    const [id] = await server.control<{ id: string }>('select id from installation');
    const unknown = '00000000-0000-4000-8000-000000000001';
    const old = [1, 2].map(days =>
      createArchiveName({
        installation: id?.id ?? '',
        tenant: unknown,
        time: new Date(Date.now() - days * 86_400_000 * 400),
        recipients: '0a1b2c3d',
      }),
    );
    for (const { name } of old) {
      await mkdir(join(folder, name, '..'), { recursive: true });
      await writeFile(join(folder, name), 'of a tenant that nobody here knows');
    }
    await writeFile(join(folder, 'notes of somebody.txt'), 'not ours');

    await pruneArchives(installation, target, { allMs: 0, hours: 0, days: 0, weeks: 0, months: 0 });

    const left = await namesIn();
    expect(left.filter(name => name.includes(unknown))).to.deep.equal(
      old.map(({ name }) => name).sort(),
    );
    expect(
      await server.control(
        `select from archives, installation where target = backup_target and state = 'complete'`,
      ),
    ).to.have.length(3);
    expect(String(await readFile(join(folder, 'notes of somebody.txt')))).to.equal('not ours');
    const listed = await listArchives(installation, target, unknown, recipients);
    expect(listed.map(({ owner, slug }) => ({ owner, slug }))).to.deep.equal([
      { owner: 'unknown', slug: null },
      { owner: 'unknown', slug: null },
    ]);
    await runSmall(installation, target);
    const { strays } = await withConnection(installation.controlUrl, readArchiveFacts);
    expect(strays.map(({ folder, objects }) => ({ folder, objects }))).to.deep.include({
      folder: `${id?.id}/tenants/${unknown}/`,
      objects: 2,
    });
  });
});
