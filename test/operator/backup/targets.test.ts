import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, rm, stat, symlink, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { readConfig } from '../../../src/lib/config/config.ts';
import { markerFile } from '../../../src/operator/backup/target/folder-target.ts';
import { openTarget } from '../../../src/operator/backup/target/open-target.ts';
import { MissingObjectError, type Target } from '../../../src/operator/backup/target/target.ts';
import { targetLimits } from '../../../src/operator/backup/target/target-calls.ts';
import { freePort } from '../../support/free-port.ts';
import { startS3Server } from '../../support/s3-server.ts';
import { useEach } from '../../support/use.ts';

const largeBytes = 9 * 1024 * 1024;
/** Limits with which no test waits long for a lock that a killed process has left. */
/** As long as a file operation may take on a busy machine, and short enough to wait for. */
const quick = { ...targetLimits, maxSilenceMs: 2_000 };

describe('targets of archives', () => {
  const s3 = useEach(() => startS3Server('backups', 2));
  let folder: string;
  let targets: { name: string; target: Target }[];
  const bucket = (settings: Record<string, string> = {}): Promise<Target> =>
    openTarget(readConfig({ ...s3.environment, ...settings }).backup);
  const folderOf = (path: string): Promise<Target> =>
    openTarget(readConfig({ BACKUP_TARGET: path }).backup);

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'target-'));
    targets = [
      { name: 'folder', target: await folderOf(folder) },
      { name: 'bucket', target: await bucket() },
    ];
    for (const { target } of targets) await target.mark();
  });
  afterEach(() => rm(folder, { recursive: true }));

  it('an object of any size is read as it was written, listed with its size and time, replaced and removed', async () => {
    const objects = { 'a/empty': 0, 'a/small & odd': 10, 'b/large': largeBytes };

    for (const { name, target } of targets) {
      await target.check();

      for (const [object, size] of Object.entries(objects)) {
        const bytes = randomBytes(size);
        expect(await target.write(object, chunks(bytes)), name).to.deep.equal({ size });
        expect((await contentOf(target, object)).equals(bytes), `${name} ${object}`).to.equal(true);
      }
      const listed = await listAll(target, 'a/');
      expect(listed.map(({ name: object, size }) => ({ object, size }))).to.have.deep.members([
        { object: 'a/empty', size: 0 },
        { object: 'a/small & odd', size: 10 },
      ]);
      for (const { modifiedAt } of listed) {
        expect(Date.now() - modifiedAt.getTime()).to.be.within(-2_000, 60_000);
      }

      await target.write('a/empty', chunks(Buffer.from('new')));
      expect(String(await contentOf(target, 'a/empty')), name).to.equal('new');

      for (const object of [...Object.keys(objects), 'never/there']) await target.remove(object);
      const missing = await target.read('b/large').catch((error: Error) => error);
      expect(missing, name).to.be.instanceOf(MissingObjectError);
      expect(await listAll(target, ''), name).to.deep.equal([]);
    }
  });

  it('files and folders of a target are for the login alone, whatever its umask is', async () => {
    const target = await folderOf(folder);
    const umask = process.umask(0);

    try {
      await target.write('own/file', chunks(Buffer.from('x')));
      await target.replaceDocument('own/doc', 'x', undefined);
    } finally {
      process.umask(umask);
    }

    for (const name of ['own', 'own/file', 'own/doc', markerFile]) {
      expect((await stat(join(folder, name))).mode & 0o077, name).to.equal(0);
    }
    await target.erase('own/');
  });

  it('a write that fails leaves no new object and no part of it, and leaves a former object unchanged', async () => {
    for (const { name, target } of targets) {
      await target.write('kept', chunks(Buffer.from('former')));

      for (const object of ['kept', 'new']) {
        const failing = target.write(object, chunks(randomBytes(largeBytes), 8.5 * 1024 * 1024));
        expect(await failing.catch((error: Error) => error.message), name).to.equal(
          'the source failed',
        );
      }

      expect(String(await contentOf(target, 'kept')), name).to.equal('former');
      expect(await target.read('new').catch((error: Error) => error.name), name).to.equal(
        'MissingObjectError',
      );
      await target.remove('kept');
    }
    expect(s3.store.uploads.size).to.equal(0);
  });

  it('unfinished files and uploads are not listed, and are removed below a prefix only', async () => {
    const [files, objects] = targets.map(({ target }) => target) as [Target, Target];
    await mkdir(join(folder, 'own'), { recursive: true });
    await mkdir(join(folder, 'others'), { recursive: true });
    for (const name of ['own', 'others']) {
      await writeFile(join(folder, name, 'killed.unfinished'), 'half');
    }
    for (let id = 0; id < 7; id++) {
      s3.store.uploads.set(`id-${id}`, { key: 'some/prefix/own/left', parts: new Map() });
    }
    s3.store.uploads.set('of others', { key: 'some/prefix/owners', parts: new Map() });

    for (const target of [files, objects]) {
      expect(await listAll(target, '')).to.deep.equal([]);
      await target.removeUnfinished('own/');
    }

    expect([...s3.store.uploads.keys()]).to.deep.equal(['of others']);
    expect(await exists(join(folder, 'own', 'killed.unfinished'))).to.equal(false);
    expect(await exists(join(folder, 'others', 'killed.unfinished'))).to.equal(true);
  });

  it('a list that the store cuts into pages is read to its end', async () => {
    const target = await bucket();
    const names = Array.from({ length: 7 }, (_, at) => `pages/${at} + ü & <x>'()*!~`);

    for (const name of names) await target.write(name, chunks(Buffer.from('x')));

    expect((await listAll(target, 'pages/')).map(({ name }) => name)).to.have.members(names);
    for (const name of names) await target.remove(name);
  });

  it('a folder without the file of backup init is refused as not mounted, and nothing is written there', async () => {
    const path = join(folder, 'mount');
    await mkdir(path);
    const target = await folderOf(path);
    const refusal = () => target.check().catch((error: Error) => error.message);

    const message = await refusal();
    expect(message).to.match(
      /^folder \S+ is no backup target yet, or is not mounted: it has no file backup-target\.txt\./,
    );
    expect(message).to.match(
      / bin\/backoffice backup init \(a copy of a target: touch \S+backup-target\.txt\)$/,
    );

    await target.mark();
    expect(await refusal()).to.equal(undefined);
    expect(await listAll(target, '')).to.deep.equal([]);
    await rm(join(path, markerFile));
    expect(await refusal()).to.include('is not mounted');
    await rm(path, { recursive: true });
    expect(await refusal()).to.match(
      /^The folder of BACKUP_TARGET does not exist: \S+\. Mount it, or make it: mkdir/,
    );
  });

  it('a folder that is mounted to be read only is read and listed, and a write says that it cannot be written', async function () {
    const path = join(folder, 'read-only');
    await mkdir(path);
    const run = promisify(execFile);
    const mounted = await run('mount', ['-t', 'tmpfs', 'tmpfs', path]).catch(() => undefined);
    if (!mounted) return this.skip(); // only root mounts

    try {
      const target = await folderOf(path);
      await target.mark();
      await target.write('a/file', chunks(Buffer.from('here')));
      await run('mount', ['-o', 'remount,ro', path]);

      await target.check();
      expect(String(await contentOf(target, 'a/file'))).to.equal('here');
      expect(await listAll(target, '')).to.have.length(1);
      const refused = await target
        .write('a/other', chunks(Buffer.from('x')))
        .catch((error: Error) => error.message);
      expect(refused).to.include(
        'is mounted to be read only: write a/other (EROFS). Mount it to be written',
      );
    } finally {
      await run('umount', [path]);
      await rm(path, { recursive: true });
    }
  });

  it('a document is replaced only if it still has the version that was read, in a folder and in a bucket', async () => {
    for (const { name, target } of targets) {
      expect(await target.readDocument('doc'), name).to.equal(undefined);
      expect(await target.replaceDocument('doc', 'one', undefined), name).to.equal(true);
      expect(await target.replaceDocument('doc', 'other', undefined), name).to.equal(false);

      const first = await target.readDocument('doc');
      expect(first?.text, name).to.equal('one');
      expect(await target.replaceDocument('doc', 'two', first?.version), name).to.equal(true);
      expect(await target.replaceDocument('doc', 'late', first?.version), name).to.equal(false);
      expect((await target.readDocument('doc'))?.text, name).to.equal('two');

      expect(await target.tryConditions('doc'), name).to.deep.equal({
        ifNoneMatch: true,
        ifMatch: true,
      });
      expect((await target.readDocument('doc'))?.text, name).to.equal('two');
      await target.remove('doc');
    }
  });

  it('of many writers that read one version at the same time, one replaces it', async () => {
    for (const { name, target } of targets) {
      await target.replaceDocument('doc', 'first', undefined);
      const version = (await target.readDocument('doc'))?.version;

      const results = await Promise.all(
        Array.from({ length: 8 }, (_, at) =>
          target.replaceDocument('doc', `writer ${at}`, version).catch(() => false),
        ),
      );

      expect(results.filter(Boolean), name).to.have.length(1);
      await target.remove('doc');
    }
  });

  it('a store that ignores conditions or does not know them is recognised, and documents are still replaced', async () => {
    const target = await bucket();
    await target.replaceDocument('doc', 'one', undefined);

    for (const support of ['ignored', 'refused'] as const) {
      s3.store.conditions = support;
      expect(await target.tryConditions('doc'), support).to.deep.equal({
        ifNoneMatch: false,
        ifMatch: false,
      });
      const present = await target.readDocument('doc');
      expect(
        await target.replaceDocument('doc', `by ${support}`, present?.version),
        support,
      ).to.equal(true);
      expect((await target.readDocument('doc'))?.text, support).to.equal(`by ${support}`);
    }
    s3.store.conditions = 'refused';
    expect(await target.replaceDocument('doc', 'late', 'another version')).to.equal(false);

    s3.store.conditions = 'heeded';
    await target.remove('doc');
  });

  it('a lock file that a killed process has left in a folder is waited for as long as a call may be silent, whatever its time', async () => {
    const target = await openTarget(readConfig({ BACKUP_TARGET: folder }).backup, quick);
    const lock = join(folder, 'doc.lock');

    for (const ageMs of [120_000, 0, -120_000]) {
      await writeFile(lock, ageMs === 0 ? '' : '4711');
      const at = new Date(Date.now() - ageMs);
      await utimes(lock, at, at);
      const startedAt = performance.now();

      expect(await target.replaceDocument('doc', 'x', undefined), `${ageMs}`).to.equal(true);

      expect(performance.now() - startedAt).to.be.at.least(quick.maxSilenceMs);
      expect(await exists(lock)).to.equal(false);
      await target.remove('doc');
    }
  });

  it('of writers that take an abandoned lock at the same moment, the last one has the file, others that wrote find it there, and no lock is left', async () => {
    const target = await openTarget(readConfig({ BACKUP_TARGET: folder }).backup, quick);
    await target.replaceDocument('doc', 'first', undefined);

    for (let round = 0; round < 5; round++) {
      const former = (await target.readDocument('doc'))?.version;
      await writeFile(join(folder, 'doc.lock'), '4711');
      const texts = Array.from({ length: 8 }, (_, writer) => `round ${round}, writer ${writer}`);

      const results = await Promise.all(
        texts.map(text => target.replaceDocument('doc', text, former)),
      );

      const written = texts.filter((_, writer) => results[writer]);
      const present = (await target.readDocument('doc'))?.text;
      expect(written).to.include(present);
      expect(written.filter(text => text !== present).length).to.be.below(written.length);
      expect(await exists(join(folder, 'doc.lock'))).to.equal(false);
    }

    await target.remove('doc');
  });

  it('a full folder leaves no lock file, so that the next attempt says that it is full, too', async function () {
    const path = join(folder, 'full');
    await mkdir(path);
    const run = promisify(execFile);
    const mounted = await run('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', path]).catch(
      () => undefined,
    );
    if (!mounted) return this.skip(); // only root mounts

    try {
      const target = await folderOf(path);
      await target.mark();
      await target.replaceDocument('doc', 'one', undefined);
      await writeFile(join(path, 'of others'), randomBytes(1_000_000)).catch(() => {});
      const version = (await target.readDocument('doc'))?.version;

      for (const attempt of [1, 2]) {
        const refused = await target
          .replaceDocument('doc', 'two', version)
          .catch((error: Error) => error.message);
        expect(refused, `${attempt}`).to.match(/^folder \S+ is full: \w+ doc \(ENOSPC\)\./);
        expect(await exists(join(path, 'doc.lock'))).to.equal(false);
      }

      expect((await target.readDocument('doc'))?.text).to.equal('one');
    } finally {
      await run('umount', [path]);
      await rm(path, { recursive: true });
    }
  });

  it('a symbolic link to a folder below an installation fails each list, with the name of the link, and nothing behind the link is removed', async () => {
    const target = await folderOf(folder);
    const id = '00000000-0000-4000-8000-000000000001';
    const elsewhere = await mkdtemp(join(tmpdir(), 'elsewhere-'));
    await writeFile(join(elsewhere, 'kept.unfinished'), 'of somebody');
    await mkdir(join(folder, id));
    await symlink(elsewhere, join(folder, id, 'tenants'));
    await symlink(elsewhere, join(folder, 'not ours'));
    await symlink(join(elsewhere, 'kept.unfinished'), join(folder, id, 'file'));

    for (const call of [
      () => listAll(target, ''),
      () => listAll(target, `${id}/`),
      () => target.erase(`${id}/`),
      () => target.removeUnfinished(`${id}/`),
    ]) {
      expect(await call().catch((error: Error) => error.message)).to.include(
        `has a symbolic link in the place of a folder, which is not followed: ${id}/tenants. Mount there`,
      );
    }
    expect(await exists(join(elsewhere, 'kept.unfinished'))).to.equal(true);

    await rm(join(folder, id, 'tenants'));
    expect(await listAll(target, '')).to.deep.equal([]);
    for (const path of [join(folder, id), join(folder, 'not ours'), elsewhere]) {
      await rm(path, { recursive: true });
    }
  });

  it('a document of a store whose tags are weak, as behind a proxy that compresses, is replaced', async () => {
    const target = await bucket();
    s3.store.weakensTags = true;
    await target.replaceDocument('doc', 'one', undefined);
    const present = await target.readDocument('doc');

    expect(await target.replaceDocument('doc', 'two', present?.version)).to.equal(true);
    expect(await target.replaceDocument('doc', 'late', present?.version)).to.equal(false);

    s3.store.weakensTags = false;
    await target.remove('doc');
  });

  it('erasing removes all objects of a prefix with all of their versions, and nothing else', async () => {
    s3.store.versions = [];
    for (const { name, target } of targets) {
      for (const object of ['gone/a', 'gone/b', 'gone/a', 'kept/a']) {
        await target.write(object, chunks(Buffer.from('x')));
      }
      await target.remove('gone/b');

      const { removed, left, error } = await target.erase('gone/');

      expect(left, name).to.deep.equal([]);
      expect(error, name).to.equal(null);
      expect(removed, name).to.equal(name === 'bucket' ? 4 : 1);
      expect(
        (await listAll(target, '')).map(object => object.name),
        name,
      ).to.deep.equal(['kept/a']);
      await target.remove('kept/a');
    }
    expect(s3.store.versions.filter(({ key }) => key.includes('/gone/'))).to.deep.equal([]);
    s3.store.versions = undefined;
  });

  it('an object that a bucket refuses to erase is named with its version and the reason, and the rest is removed', async () => {
    const target = await bucket();
    s3.store.versions = [];
    for (const object of ['gone/a', 'gone/b']) await target.write(object, chunks(Buffer.from('x')));
    const isLocked = (request: string): boolean => /^DELETE .*gone\/a/.test(request);
    s3.faultOf = request =>
      isLocked(request) ? { kind: 'status', status: 403, code: 'AccessDenied' } : undefined;

    const { removed, left, error } = await target.erase('gone/');

    expect(removed).to.equal(1);
    expect(left).to.have.length(1);
    expect(left[0]).to.match(/^gone\/a \(version [0-9a-f]+\)$/);
    expect(error).to.include('remove gone/a: 403 AccessDenied');
    s3.faultOf = () => undefined;
    expect((await target.erase('gone/')).left).to.deep.equal([]);
    s3.store.versions = undefined;
  });

  it('a store without versions is erased by its list of objects, and so is one whose versions may not be listed, with a warning', async () => {
    const target = await bucket();

    for (const [status, code, expected] of [
      [501, 'NotImplemented', null],
      [403, 'AccessDenied', 'this login may not list versions (s3:ListBucketVersions)'],
    ] as const) {
      await target.write('gone/a', chunks(Buffer.from('x')));
      s3.faultOf = request =>
        request.includes('versions') ? { kind: 'status', status, code } : undefined;

      const erased = await target.erase('gone/');

      expect(erased.removed, code).to.equal(1);
      expect(erased.left, code).to.deep.equal([]);
      if (expected === null) expect(erased.error, code).to.equal(null);
      else expect(erased.error, code).to.include(expected);
    }
    s3.faultOf = () => undefined;
  });

  it('a store that answers a question for versions with a list of objects is erased by that list, and asked once', async () => {
    const target = await bucket();
    s3.store.knowsVersions = false;
    for (const object of ['gone/a', 'gone/b', 'gone/c', 'kept/a']) {
      await target.write(object, chunks(Buffer.from('x')));
    }
    s3.requests.length = 0;

    const { removed, left, error } = await target.erase('gone/');

    expect({ removed, left, error }).to.deep.equal({ removed: 3, left: [], error: null });
    expect((await listAll(target, '')).map(({ name }) => name)).to.deep.equal(['kept/a']);
    expect(
      s3.requests.filter(request => /[?&](versions|uploads)/.test(request)).length,
    ).to.be.at.most(3);
    s3.store.knowsVersions = true;
    await target.remove('kept/a');
  });

  it('bytes that differ from the checksum of the store fail the read at its end, with what to do', async () => {
    const target = await bucket();
    for (const size of [1_000, largeBytes]) {
      await target.write('rotten', chunks(randomBytes(size)));
      const bytes = Buffer.from(s3.store.objects.get('some/prefix/rotten') ?? []);
      bytes[size - 1] = (bytes[size - 1] ?? 0) ^ 1;
      s3.store.objects.set('some/prefix/rotten', bytes);

      const read = await contentOf(target, 'rotten').catch((error: Error) => error.message);

      expect(read, `${size} bytes`).to.include(
        'sent bytes that differ from its own checksum of them: read rotten',
      );
    }
    await target.remove('rotten');
  });

  it('an unusable bucket is explained by the setting to correct', async () => {
    const port = await freePort();
    const explain = async (settings: Record<string, string>): Promise<unknown> => {
      const target = await bucket(settings);
      return target.check().catch((error: Error) => error.message);
    };

    expect(await explain({ BACKUP_TARGET: 's3://nothing' })).to.equal(
      's3://nothing refused a request: check the target: 404 NoSuchBucket. Create the bucket, or correct BACKUP_TARGET',
    );
    expect(await explain({ AWS_ACCESS_KEY_ID: 'nobody' })).to.equal(
      's3://backups/some/prefix refused a request: check the target: 403 InvalidAccessKeyId. Check AWS_ACCESS_KEY_ID',
    );
    expect(await explain({ AWS_ENDPOINT_URL: `http://127.0.0.1:${port}` })).to.equal(
      's3://backups/some/prefix cannot be reached (ECONNREFUSED): check the target. Check BACKUP_TARGET and AWS_ENDPOINT_URL, and let the network through to the store',
    );
    const half = await bucket({ AWS_SECRET_ACCESS_KEY: '' }).catch((error: Error) => error.message);
    expect(half).to.include('are one login: set both of them');
  });
});

function chunks(bytes: Buffer, failAt = Number.POSITIVE_INFINITY): Readable {
  async function* cut(): AsyncGenerator<Buffer> {
    for (let at = 0; at < bytes.length; at += 100_000) {
      if (at >= failAt) throw new Error('the source failed');
      yield bytes.subarray(at, at + 100_000);
    }
  }
  return Readable.from(cut(), { objectMode: false });
}

async function contentOf(target: Target, name: string): Promise<Buffer> {
  return buffer(await target.read(name));
}

function listAll(target: Target, prefix: string) {
  return Array.fromAsync(target.list(prefix));
}

function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}
