import { execFile } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { type Installation, openInstallation } from '../../../src/control/installation.ts';
import { readConfig } from '../../../src/lib/config/config.ts';
import { withBackupLock } from '../../../src/operator/backup/backup-lock.ts';
import { parseArchiveName } from '../../../src/operator/backup/target/archive-name.ts';
import { openTarget } from '../../../src/operator/backup/target/open-target.ts';
import type { Target } from '../../../src/operator/backup/target/target.ts';
import { initTarget } from '../../../src/operator/backup/writer.ts';
import { ArchiveFacts } from '../../support/archive-facts.ts';
import { backupSettings } from '../../support/backup-settings.ts';
import { runScript } from '../../support/command-line.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { type S3Server, startS3Server } from '../../support/s3-server.ts';
import { runSmall } from '../../support/small-archives.ts';
import { use, useFolder } from '../../support/use.ts';

/** Of each database the newest archive is kept. */
const keepNewest = '1m';

/** A target that a test fills. */
interface Place {
  readonly target: Target;
  readonly settings: Readonly<Record<string, string>>;
  /** Leaves no room for one more object. */
  fill(): Promise<void>;
  /** Makes room for much more. */
  empty(): Promise<void>;
  close(): Promise<unknown>;
}

/** Each kind of target that can be full; undefined: it cannot be made here. */
const places: Readonly<Record<string, (folder: string) => Promise<Place | undefined>>> = {
  'folder without blocks': folder => makeFolder(join(folder, 'blocks'), 'size=1m'),
  'folder without inodes': folder => makeFolder(join(folder, 'inodes'), 'size=16m,nr_inodes=60'),
  bucket: makeBucket,
};

describe('archives on bad storage', () => {
  const server = use(createDedicatedServer);
  const facts = new ArchiveFacts(server);
  const folder = useFolder();
  let installation: Installation;

  const run = (place: Place, ...args: string[]) =>
    runCommand('scripts/tenant.ts', args, {
      ...server.environment,
      ...place.settings,
      BACKUP_KEEP: keepNewest,
    });
  const namesOf = async ({ target }: Place): Promise<string[]> =>
    (await Array.fromAsync(target.list(''), ({ name }) => name))
      .filter(name => parseArchiveName(name))
      .sort();
  const ownersOf = (names: readonly string[]): string[] =>
    names.map(name => parseArchiveName(name)?.tenant ?? 'control').sort();

  /** Makes three archives of each tenant and of the control database. */
  async function archive({ target, empty }: Place): Promise<void> {
    await empty();
    await withBackupLock(installation.controlUrl, 'archives', control =>
      initTarget(control, target, { takeOver: false, isDryRun: false }),
    );

    for (const round of [1, 2, 3]) {
      for (const { slug } of await server.control<{ slug: string }>('select slug from tenants')) {
        await server.sql(
          `insert into currencies (code, name) select 'X' || count(*), 'round ${round}' from currencies`,
          await server.databaseOf(slug),
        );
      }
      await runSmall(installation, target);
    }
  }

  const readWriter = async (): Promise<string> =>
    JSON.stringify(
      (await server.control('select target_writer, next_target_writer from installation'))[0],
    );
  const setWriter = (writer: string): Promise<unknown> =>
    server.control(
      `update installation set (target_writer, next_target_writer) =
              (select * from json_to_record('${writer}') as known (target_writer uuid, next_target_writer uuid))`,
    );

  before(async () => {
    for (const slug of ['acme', 'globex']) await server.provision(slug);
    installation = await openInstallation(readConfig(server.environment));
  });
  after(() => installation.close());

  for (const [kind, make] of Object.entries(places)) {
    describe(`a full target: ${kind}`, () => {
      let place: Place;

      before(async function () {
        const made = await make(folder);
        if (!made) return this.skip(); // only root mounts

        place = made;
      });
      beforeEach(async () => {
        await archive(place);
        await place.fill();
      });
      after(() => place?.close());

      it('another control database of the installation removes nothing there', async () => {
        const before = await namesOf(place);
        const own = await readWriter();
        await setWriter(JSON.stringify({ target_writer: randomUUID() }));

        const { code, stderr } = await run(place, 'backup', 'prune');

        expect(code).to.equal(1);
        expect(stderr).to.include('Another control database of this installation writes to');
        expect(await namesOf(place)).to.deep.equal(before);
        await setWriter(own);
      });

      it('prune removes what BACKUP_KEEP does not keep, says how much, and keeps the newest of each database', async () => {
        const planned = await run(place, 'backup', 'prune', '--dry-run');
        const before = await namesOf(place);

        const { code, stdout, stderr } = await run(place, 'backup', 'prune');

        expect(code, stdout + stderr).to.equal(0);
        const after = await namesOf(place);
        const removed = before.filter(name => !after.includes(name));
        expect(stdout).to.include(`${removed.length} archives removed.`);
        expect(planned.stdout.trim().split('\n').sort()).to.deep.equal(removed);
        expect(ownersOf(after)).to.deep.equal(
          ['control', await facts.guidOf('acme'), await facts.guidOf('globex')].sort(),
        );
      });

      it('a copy of the control database from before the prune is refused after it', async () => {
        const copied = await readWriter();
        await run(place, 'backup', 'prune');
        const before = await namesOf(place);
        const own = await readWriter();
        await setWriter(copied);

        const { code, stderr } = await run(place, 'backup', 'prune');

        expect(code).to.equal(1);
        expect(stderr).to.include('Another control database of this installation writes to');
        expect(await namesOf(place)).to.deep.equal(before);
        await setWriter(own);
      });

      it('a purge removes all archives of its tenant, and says how many', async () => {
        await server.provision('initech');
        await archive(place);
        const guid = await facts.guidOf('initech');
        const owned = ownersOf(await namesOf(place)).filter(owner => owner === guid);
        await place.fill();
        await run(place, 'delete', 'initech', '--yes');

        const { code, stdout, stderr } = await run(place, 'purge', 'initech', '--yes');

        expect(code, stdout + stderr).to.equal(0);
        expect(stdout).to.include(
          `${place.target.description} had of it: ${owned.length} archives`,
        );
        expect(ownersOf(await namesOf(place))).not.to.include(guid);
      });

      it('a prune that may remove nothing says that it is full, and names BACKUP_KEEP', async () => {
        await run(place, 'backup', 'prune');
        const before = await namesOf(place);
        await place.fill();

        const { code, stderr } = await run(place, 'backup', 'prune');

        expect(code).to.equal(1);
        expect(stderr).to.include(
          `${place.target.description} is full, and has no archive that is to go. Make room there, or set a shorter BACKUP_KEEP`,
        );
        expect(await namesOf(place)).to.deep.equal(before);
      });
    });
  }

  it('a store that stays full while archives go loses no more than sixteen in a command, which says how many', async () => {
    const s3 = await startS3Server('backups');
    const place = await bucketOf(s3);
    await archive(place);
    for (let round = 0; round < 4; round++) await archive(place);
    const before = await namesOf(place);
    s3.faultOf = request =>
      request.startsWith('PUT')
        ? { kind: 'status', status: 403, code: 'QuotaExceeded' }
        : undefined;

    const { code, stderr } = await run(place, 'backup', 'prune');

    expect(code).to.equal(1);
    expect(stderr).to.include('is still full: 16 archives had to go and made no room for');
    expect(before.length - (await namesOf(place)).length).to.equal(16);

    s3.faultOf = () => undefined;
    expect((await run(place, 'backup', 'prune')).code).to.equal(0);
    expect(await namesOf(place)).to.have.length(3);
    await s3.close();
  });

  it('a folder whose file system cannot flush folders takes archives, and gives them back', async function () {
    const library = await compileUnflushable(folder);
    if (library === undefined) return this.skip(); // no C compiler

    const path = join(folder, 'unflushable');
    await mkdir(path);
    const place = { ...(await backupSettings(path)), LD_PRELOAD: library };
    const command = (...args: string[]) =>
      runScript('scripts/tenant.ts', args, { ...server.environment, ...place });

    const made = await command('backup', 'init');
    const archived = await command('backup', 'run', '--all');
    const opened = await command('backup', 'drill');

    for (const { code, stdout, stderr } of [made, archived, opened]) {
      expect(code, stdout + stderr).to.equal(0);
    }
  });
});

/**
 * Compiles a library that lets each flush of a folder fail, as some file systems of a network
 * do.
 * @returns its path; undefined: there is no compiler
 */
async function compileUnflushable(folder: string): Promise<string | undefined> {
  const library = join(folder, 'unflushable.so');
  const source = `
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <errno.h>
    #include <sys/stat.h>

    int fsync(int file) {
      struct stat found;
      if (fstat(file, &found) == 0 && S_ISDIR(found.st_mode)) {
        errno = EINVAL;
        return -1;
      }
      int (*flush)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
      return flush(file);
    }`;
  await writeFile(join(folder, 'unflushable.c'), source);

  const compiled = await promisify(execFile)('cc', [
    '-shared',
    '-fPIC',
    '-o',
    library,
    join(folder, 'unflushable.c'),
    '-ldl',
  ]).catch(() => undefined);

  return compiled && library;
}

async function makeFolder(path: string, options: string): Promise<Place | undefined> {
  const call = promisify(execFile);
  await mkdir(path);
  const mounted = await call('mount', ['-t', 'tmpfs', '-o', options, 'tmpfs', path]).catch(
    () => undefined,
  );
  if (!mounted) return undefined;

  const settings = { BACKUP_TARGET: path };
  const target = await openTarget(readConfig(settings).backup);
  let filling = 0;

  return {
    target,
    settings,
    fill: async () => {
      for (;;) {
        filling++;
        const isWritten = await writeFile(
          join(path, `of others ${filling}`),
          randomBytes(4_096),
        ).then(
          () => true,
          () => false,
        );
        if (!isWritten) return;
      }
    },
    empty: async () => {
      for (; filling > 0; filling--) {
        await rm(join(path, `of others ${filling}`), { force: true });
      }
    },
    close: () => call('umount', [path]),
  };
}

async function makeBucket(): Promise<Place> {
  return bucketOf(await startS3Server('backups'));
}

async function bucketOf(s3: S3Server): Promise<Place> {
  const { store, environment } = s3;

  return {
    target: await openTarget(readConfig(environment).backup),
    settings: environment,
    fill: async () => {
      const sizes = [...store.objects.values()].map(({ length }) => length);
      store.capacity = sizes.reduce((sum, size) => sum + size, 0) - 1;
    },
    empty: async () => {
      store.capacity = Number.POSITIVE_INFINITY;
    },
    close: () => s3.close(),
  };
}
