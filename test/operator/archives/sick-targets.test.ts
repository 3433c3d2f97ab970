import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, open as openFile, rm, stat, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { expect } from 'chai';
import { readConfig } from '../../../src/config/config.ts';
import type { BackupTarget } from '../../../src/operator/archives/targets/backup-target.ts';
import { openTarget } from '../../../src/operator/archives/targets/open-target.ts';
import { maxSilentCalls, targetLimits } from '../../../src/operator/archives/targets/target-calls.ts';
import { type S3Fault, type S3Server, startS3Server } from '../../support/s3-server.ts';

const limits = { maxSilenceMs: 2_000, retryMs: 1 };

/** Every call of a target, by its name in messages. */
const calls: Record<string, (target: BackupTarget) => Promise<unknown>> = {
  'check the target': target => target.check(),
  'write a/file': target => target.write('a/file', chunksOf(Buffer.alloc(100_000))),
  'read a/file': async target => buffer((await target.read('a/file')) ?? chunksOf()),
  'list a/': target => listAll(target, 'a/'),
  'remove a/file': target => target.remove('a/file'),
};

describe('sick backup targets', () => {
  let s3: S3Server;
  let folder: string;
  const open = (settings: Record<string, string> = {}): BackupTarget =>
    openTarget(readConfig({ ...s3.environment, ...settings }).backup, limits);
  const messageOf = (call: string, target = open()): Promise<unknown> =>
    Promise.resolve(calls[call]?.(target)).then(
      () => 'no error',
      (error: Error) => error.message,
    );

  beforeEach(async () => {
    s3 = await startS3Server('backups', 2);
    folder = await mkdtemp(join(tmpdir(), 'sick-target-'));
    await open().write('a/file', chunksOf(Buffer.from('present')));
    s3.requests.length = 0;
  });
  afterEach(async () => {
    await s3.close();
    await rm(folder, { recursive: true });
  });

  it('each call of a store that is silent fails after the limit, and its message names the call', async () => {
    s3.faultOf = () => ({ kind: 'silent' });
    const expected = (call: string): string =>
      `s3://backups/some/prefix was silent for 2 s: ${call}. Check AWS_ENDPOINT_URL and the network, then try again`;
    const names = Object.keys(calls);
    expect(await Promise.all(names.map(call => messageOf(call)))).to.deep.equal(names.map(expected));
  });

  it('a store that accepts connections and never answers fails each call after the limit, also by HTTPS', async () => {
    const sockets: Socket[] = [];
    const server = createServer(socket => sockets.push(socket)).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    for (const scheme of ['http', 'https']) {
      const target = open({ AWS_ENDPOINT_URL: `${scheme}://127.0.0.1:${port}` });
      expect(await messageOf('write a/file', target)).to.include('was silent for 2 s: write a/file.');
    }
    for (const socket of sockets) socket.destroy();
    server.close();
  });

  it('a body that stops fails after the limit, and one that is cut fails at once, both with the call', async () => {
    for (const call of ['read a/file', 'list a/']) {
      s3.faultOf = () => ({ kind: 'silent in the body' });
      expect(await messageOf(call)).to.include(`was silent for 2 s: ${call}.`);
      s3.faultOf = () => ({ kind: 'cut in the body' });
      expect(await messageOf(call)).to.equal(
        `s3://backups/some/prefix closed the connection: ${call} (ECONNRESET). Try again`,
      );
    }
  });

  it('a body that takes longer than the limit is read whole while bytes arrive, also by a slow reader', async () => {
    const target = open();
    await target.write('a/large', chunksOf(Buffer.alloc(8 * 1024 * 1024, 'x')));
    const unread = (await target.read('a/large')) ?? chunksOf();
    s3.faultOf = () => ({ kind: 'slow', pieces: 7, pauseMs: limits.maxSilenceMs / 4 });
    expect(String(await calls['read a/file']?.(target))).to.equal('present');
    expect((await buffer(unread)).length).to.equal(8 * 1024 * 1024);
  });

  it('after two silent calls in a row every later call fails without a request, and a response starts the count anew', async () => {
    const target = open();
    const silence: S3Fault = { kind: 'silent' };
    s3.faultOf = request => (request.startsWith('PUT') ? silence : undefined);
    await messageOf('write a/file', target);
    expect(await messageOf('read a/file', target)).to.equal('no error');
    s3.faultOf = () => silence;
    await messageOf('write a/file', target);
    await messageOf('remove a/file', target);
    const sent = s3.requests.length;
    expect(await messageOf('list a/', target)).to.equal(
      's3://backups/some/prefix does not respond, so this was not tried: list a/. Check AWS_ENDPOINT_URL and the network, then try again',
    );
    expect(s3.requests.length).to.equal(sent);
  });

  it('the default limits let a run end 60 s after a target falls silent', () => {
    // A call that began just before the last silent one ended is silent as long again.
    expect((maxSilentCalls + 1) * targetLimits.maxSilenceMs).to.be.at.most(60_000);
  });

  it('a redirect is not followed, so that no other host gets the login, and the message names the settings', async () => {
    const other = await startS3Server('backups');
    const host = new URL(other.environment.AWS_ENDPOINT_URL ?? '').host;
    for (const status of [301, 302, 307, 308]) {
      s3.faultOf = request => ({ kind: 'redirect', status, location: `http://${host}${request.split(' ')[1]}` });
      for (const call of Object.keys(calls))
        expect(await messageOf(call), call).to.equal(
          `s3://backups/some/prefix redirects to ${host} (${status} Redirect), which gets no login. Set AWS_ENDPOINT_URL and AWS_REGION to those of the bucket`,
        );
    }
    expect(other.requests).to.deep.equal([]);
    await other.close();
  });

  it('a request that the store throttles, fails or cuts before its answer is sent again, at most four times', async () => {
    const faults: S3Fault[] = [
      { kind: 'status', status: 503, code: 'SlowDown' },
      { kind: 'status', status: 500, code: 'InternalError' },
      { kind: 'status', status: 429, code: 'TooManyRequests' },
      { kind: 'no answer' },
    ];
    for (const call of Object.keys(calls)) {
      let left = [...faults];
      s3.faultOf = () => left.shift();
      expect(await messageOf(call), call).to.equal('no error');
      left = Array(5).fill(faults[0]);
      expect(await messageOf(call), call).to.equal(
        's3://backups/some/prefix refused a request: 503 SlowDown. Try it again',
      );
    }
  });

  it('a wrong secret, a wrong token and a wrong clock are explained by what to correct', async () => {
    const refused = 's3://backups/some/prefix refused a request:';
    const check = (settings: Record<string, string>) => messageOf('check the target', open(settings));
    expect(await check({ AWS_SECRET_ACCESS_KEY: 'wrong' })).to.equal(
      `${refused} 403 SignatureDoesNotMatch. Check AWS_SECRET_ACCESS_KEY`,
    );
    expect(await check({ AWS_SESSION_TOKEN: 'wrong' })).to.equal(
      `${refused} 400 InvalidToken. Check AWS_SESSION_TOKEN`,
    );
    expect(await check({ AWS_REGION: 'us-west-2' })).to.equal(
      `${refused} 400 AuthorizationHeaderMalformed. Check AWS_REGION`,
    );
    s3.clockOffsetMs = 16 * 60_000;
    expect(await check({})).to.equal(`${refused} 403 RequestTimeTooSkewed. Set the clock of this machine`);
  });

  it('an upload whose end fails with status 200 is no file, and leaves no parts in the store', async () => {
    s3.faultOf = request => (/^POST .*uploadId=/.test(request) ? { kind: 'error in the document' } : undefined);
    const large = open().write('large', chunksOf(Buffer.alloc(9 * 1024 * 1024), Buffer.alloc(10)));
    expect(await large.catch((error: Error) => error.message)).to.include('200 InternalError');
    expect([s3.store.objects.has('some/prefix/large'), s3.store.uploads.size]).to.deep.equal([false, 0]);
  });

  it('a folder whose disk does not answer fails each call after the limit, and its message names the call', async () => {
    const target = openTarget(readConfig({ BACKUP_TARGET: folder }).backup, limits);
    // Nobody reads this pipe, so that opening it to write takes for ever, as on a mount whose server is away. The files
    // of a process are opened by this many threads.
    const pipe = join(folder, 'pipe');
    const makePipe = 'mkfifo'; // knip takes a literal for a binary of this package
    execFileSync(makePipe, [pipe]);
    const threads = Number(process.env.UV_THREADPOOL_SIZE ?? 4);
    const opened = Promise.all(Array.from({ length: threads }, () => openFile(pipe, 'w')));
    const written = target.write('file', chunksOf(Buffer.from('x'))).catch((error: Error) => error.message);
    expect(await written).to.equal(
      `folder ${folder} was silent for 2 s: write file. Check its mount and its disk, then try again`,
    );
    const reader = spawn('cat', [pipe]);
    for (const file of await opened) await file.close();
    await once(reader, 'exit');
  });

  it('a folder in the place of an archive is no file: it is neither listed, read nor removed, and fails no removal', async () => {
    const target = openTarget(readConfig({ BACKUP_TARGET: folder }).backup, limits);
    await mkdir(join(folder, 'a', 'archive'), { recursive: true });
    await writeFile(join(folder, 'b'), '');
    expect(await listAll(target, '')).to.deep.equal([{ name: 'b', bytes: 0 }]);
    for (const name of ['a/archive', 'b/archive']) {
      expect(await target.read(name), name).to.equal(undefined);
      await target.remove(name);
    }
    expect((await stat(join(folder, 'a', 'archive'))).isDirectory()).to.equal(true);
    expect(await target.write('a/archive', chunksOf(Buffer.from('x'))).catch((error: Error) => error.message)).to.equal(
      `folder ${folder} has a folder in the place of a file: write a/archive (EISDIR). Move it away, then try again`,
    );
    expect(await listAll(target, 'a/')).to.deep.equal([]);
  });
});

async function* chunksOf(...chunks: Buffer[]): AsyncGenerator<Buffer> {
  yield* chunks;
}

async function listAll(target: BackupTarget, prefix: string): Promise<object[]> {
  const files: object[] = [];
  for await (const file of target.list(prefix)) files.push(file);
  return files;
}
