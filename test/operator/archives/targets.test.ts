import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { expect } from 'chai';
import { readConfig } from '../../../src/config/config.ts';
import type { BackupTarget } from '../../../src/operator/archives/targets/backup-target.ts';
import { openTarget } from '../../../src/operator/archives/targets/open-target.ts';
import { freePort } from '../../support/free-port.ts';
import { startS3Server } from '../../support/s3-server.ts';
import { use, useFolder } from '../../support/use.ts';

async function* chunks(bytes: Buffer, failAt = Number.POSITIVE_INFINITY): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += 100_000) {
    if (at >= failAt) throw new Error('the source failed');
    yield bytes.subarray(at, at + 100_000);
  }
}

describe('backup targets', () => {
  const s3 = use(() => startS3Server('backups', 2));
  const folder = useFolder();
  const targets: { name: string; target: BackupTarget }[] = [];

  before(async () => {
    targets.push({ name: 'folder', target: openTarget(readConfig({ BACKUP_TARGET: folder }).backup) });
    targets.push({ name: 'bucket', target: openTarget(readConfig(s3.environment).backup) });
  });

  it('a file of any size is read as it was written, listed with its size, replaced and removed', async () => {
    for (const { name, target } of targets) {
      await target.check();
      const files = { 'a/empty': 0, 'a/small & odd': 10, 'b/large': 9 * 1024 * 1024 };
      for (const [file, size] of Object.entries(files)) {
        const bytes = randomBytes(size);
        expect(await target.write(file, chunks(bytes)), name).to.equal(size);
        expect(
          (await buffer((await target.read(file)) ?? chunks(Buffer.alloc(0)))).equals(bytes),
          `${name} ${file}`,
        ).to.equal(true);
      }
      const listed = await listNames(target, 'a/');
      expect(listed, name).to.have.deep.members([
        { name: 'a/empty', bytes: 0 },
        { name: 'a/small & odd', bytes: 10 },
      ]);
      await target.write('a/empty', chunks(Buffer.from('new')));
      expect((await buffer((await target.read('a/empty')) ?? chunks(Buffer.alloc(0)))).toString(), name).to.equal(
        'new',
      );
      for (const file of [...Object.keys(files), 'never/there']) await target.remove(file);
      expect(await target.read('b/large'), name).to.equal(undefined);
      expect(await listNames(target, ''), name).to.deep.equal([]);
    }
  });

  it('a write that fails leaves no new file, and leaves a former file unchanged', async () => {
    for (const { name, target } of targets) {
      await target.write('kept', chunks(Buffer.from('former')));
      for (const file of ['kept', 'new']) {
        const failing = target.write(file, chunks(randomBytes(9 * 1024 * 1024), 8.5 * 1024 * 1024));
        expect(await failing.catch((error: Error) => error.message), name).to.equal('the source failed');
      }
      expect((await buffer((await target.read('kept')) ?? chunks(Buffer.alloc(0)))).toString(), name).to.equal(
        'former',
      );
      expect(await target.read('new'), name).to.equal(undefined);
    }
    await writeFile(join(folder, 'killed.unfinished'), 'half');
    expect(await listNames(targets[0]?.target as BackupTarget, '')).to.deep.equal([{ name: 'kept', bytes: 6 }]);
    for (const { target } of targets) await target.removeUnfinished('');
  });

  it('a file that is written twice at the same time has the whole of the later write, and neither one fails', async () => {
    for (const { name, target } of targets) {
      const [begun, other] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
      const later = async function* (): AsyncGenerator<Buffer> {
        yield Buffer.from('la');
        begun.resolve();
        await other.promise;
        yield Buffer.from('ter');
      };
      const writing = target.write('twice', later());
      await begun.promise;
      await target.write('twice', chunks(Buffer.from('earlier')));
      other.resolve();
      await writing;
      expect((await buffer((await target.read('twice')) ?? later())).toString(), name).to.equal('later');
      await target.remove('twice');
    }
  });

  it('a list that the store cuts into pages is read to its end, and every unfinished upload is removed', async () => {
    const { target } = targets[1] as { target: BackupTarget };
    const names = Array.from({ length: 7 }, (_, at) => `pages/${at} + ü & <x>'()*!~`);
    for (const name of names) await target.write(name, chunks(Buffer.from('x')));
    expect(await listNames(target, 'pages/')).to.have.deep.members(names.map(name => ({ name, bytes: 1 })));
    for (const name of names) await target.remove(name);
    for (let id = 0; id < 7; id++) s3.store.uploads.set(`id-${id}`, { key: 'some/prefix/left', parts: new Map() });
    s3.store.uploads.set('of others', { key: 'some/prefixes', parts: new Map() });
    await target.removeUnfinished('');
    expect([...s3.store.uploads.keys()]).to.deep.equal(['of others']);
  });

  it('an unusable bucket is explained by the setting to correct', async () => {
    const port = await freePort();
    const messages = await Promise.all(
      [
        { BACKUP_TARGET: 's3://nothing' },
        { AWS_ACCESS_KEY_ID: 'nobody' },
        { AWS_ENDPOINT_URL: `http://127.0.0.1:${port}` },
      ].map(settings =>
        openTarget(readConfig({ ...s3.environment, ...settings }).backup)
          .check()
          .catch((error: Error) => error.message),
      ),
    );
    expect(messages).to.deep.equal([
      's3://nothing refused a request: 404 NoSuchBucket. Create the bucket, or correct BACKUP_TARGET',
      's3://backups/some/prefix refused a request: 403 InvalidAccessKeyId. Check AWS_ACCESS_KEY_ID',
      's3://backups/some/prefix cannot be reached (ECONNREFUSED). Check BACKUP_TARGET and AWS_ENDPOINT_URL',
    ]);
  });
});

async function listNames(target: BackupTarget, prefix: string): Promise<object[]> {
  const files: object[] = [];
  for await (const file of target.list(prefix)) files.push(file);
  return files;
}
