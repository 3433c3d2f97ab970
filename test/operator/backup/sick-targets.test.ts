import { execFile, execFileSync, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, mkdtemp, open as openFile, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { readConfig } from '../../../src/lib/config/config.ts';
import { openTarget } from '../../../src/operator/backup/target/open-target.ts';
import type { Target } from '../../../src/operator/backup/target/target.ts';
import { targetLimits } from '../../../src/operator/backup/target/target-calls.ts';
import { startBufferingProxy } from '../../support/buffering-proxy.ts';
import { type S3Fault, type S3Server, startS3Server } from '../../support/s3-server.ts';

const limits = { ...targetLimits, maxSilenceMs: 2_000 };
const largeBytes = 9 * 1024 * 1024;

/** Every call of a target, by its name in messages. */
const calls: Record<string, (target: Target) => Promise<unknown>> = {
  'check the target': target => target.check(),
  'write a/file': target => target.write('a/file', bodyOf(Buffer.alloc(1_000))),
  'read a/file': async target => buffer(await target.read('a/file')),
  'list a/': target => Array.fromAsync(target.list('a/')),
  'remove a/file': target => target.remove('a/file'),
};

describe('sick targets of archives', () => {
  let s3: S3Server;
  let folder: string;
  const open = (settings: Record<string, string> = {}): Promise<Target> =>
    openTarget(readConfig({ ...s3.environment, ...settings }).backup, limits);
  const messageOf = async (call: string, target?: Target): Promise<unknown> => {
    const opened = target ?? (await open());
    return Promise.resolve(calls[call]?.(opened)).then(
      () => 'no error',
      (error: Error) => error.message,
    );
  };

  beforeEach(async () => {
    s3 = await startS3Server('backups', 2);
    folder = await mkdtemp(join(tmpdir(), 'sick-target-'));
    const target = await open();
    await target.write('a/file', bodyOf(Buffer.from('present')));
    s3.requests.length = 0;
  });
  afterEach(async () => {
    await s3.close();
    await rm(folder, { recursive: true });
  });

  it('each call of a store that is silent fails after the limit, and its message names the call', async () => {
    s3.faultOf = () => ({ kind: 'silent' });
    const names = Object.keys(calls);

    const messages = await Promise.all(names.map(call => messageOf(call)));

    expect(messages).to.deep.equal(
      names.map(
        call =>
          `s3://backups/some/prefix was silent for 2 s: ${call}. Check AWS_ENDPOINT_URL and the network, then try again`,
      ),
    );
    expect(s3.requests, 'none is sent again').to.have.length(names.length);
  });

  it('a store that accepts connections and never answers fails each call after the limit, also by HTTPS', async () => {
    const sockets: Socket[] = [];
    const server = createServer(socket => sockets.push(socket)).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;

    for (const scheme of ['http', 'https']) {
      const target = await open({ AWS_ENDPOINT_URL: `${scheme}://127.0.0.1:${port}` });
      expect(await messageOf('write a/file', target), scheme).to.include(
        'was silent for 2 s: write a/file.',
      );
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
    const target = await open();
    const large = randomBytes(largeBytes);
    await target.write('a/large', bodyOf(large));

    const unread = await target.read('a/large');
    s3.faultOf = () => ({ kind: 'slow', pieces: 7, pauseMs: limits.maxSilenceMs / 4 });
    expect(String(await calls['read a/file']?.(target))).to.equal('present');

    expect((await buffer(unread)).equals(large)).to.equal(true);
  });

  it('a source that is slow is no silence of the store, whose upload waits for it', async () => {
    const target = await open();
    const pause = limits.maxSilenceMs * 1.2;
    async function* slow(): AsyncGenerator<Buffer> {
      for (let at = 0; at < 3; at++) {
        await new Promise(resolve => setTimeout(resolve, pause));
        yield Buffer.alloc(4 * 1024 * 1024, at);
      }
    }

    expect(await target.write('slow', Readable.from(slow()))).to.deep.equal({
      size: 12 * 1024 * 1024,
    });
  });

  it('bytes that a proxy has taken and not yet passed on lengthen the limit, whatever their number is, also by those of other writes on the same line', async () => {
    // The line is four times as fast as it must be, and calls without a body have two seconds,
    // since other test files share the processor.
    const quick = { maxSilenceMs: 2_000, bytesPerSecond: 500_000 };
    const proxy = await startBufferingProxy(
      s3.environment.AWS_ENDPOINT_URL ?? '',
      4 * quick.bytesPerSecond,
    );
    const { backup } = readConfig({ ...s3.environment, AWS_ENDPOINT_URL: proxy.url });
    const target = await openTarget(backup, quick);

    try {
      for (const sizes of [[largeBytes], Array.from({ length: 10 }, () => 1_000_000)]) {
        const written = sizes.map((size, at) =>
          target.write(`a/${at}`, bodyOf(Buffer.alloc(size, 'x'))),
        );
        expect(await Promise.all(written)).to.deep.equal(sizes.map(size => ({ size })));
      }
    } finally {
      await proxy.close();
    }
  });

  it('a store that never acknowledges what it has taken fails the write after the lengthened limit, which the message names', async () => {
    const target = await openTarget(readConfig(s3.environment).backup, {
      maxSilenceMs: 1_000,
      bytesPerSecond: 4_000_000,
    });
    s3.faultOf = () => ({ kind: 'silent' });

    const written = target
      .write('a/file', bodyOf(Buffer.alloc(8_000_000)))
      .catch((error: Error) => error.message);

    expect(await written).to.include('was silent for 3 s: write a/file.');
  });

  it('after two silent calls in a row every later call fails without a request, and a response starts the count anew', async () => {
    const target = await open();
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
    // Two silent calls in a row; a call that began just before the last one ended is silent as
    // long again.
    expect(3 * targetLimits.maxSilenceMs).to.be.at.most(60_000);
  });

  it('a redirect is not followed, so that no other host gets the login, and the message names the settings', async () => {
    const other = await startS3Server('backups');
    const host = new URL(other.environment.AWS_ENDPOINT_URL ?? '').host;

    for (const status of [301, 302, 307, 308]) {
      s3.faultOf = request => ({
        kind: 'redirect',
        status,
        location: `http://${host}${request.split(' ')[1]}`,
      });
      for (const call of Object.keys(calls)) {
        expect(await messageOf(call), call).to.equal(
          `s3://backups/some/prefix redirects to ${host} (${status}), which gets no login. Set AWS_ENDPOINT_URL and AWS_REGION to those of the bucket`,
        );
      }
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

    for (const call of ['write a/file', 'list a/']) {
      const left = [...faults];
      s3.faultOf = () => left.shift();
      expect(await messageOf(call), call).to.equal('no error');
    }

    s3.requests.length = 0;
    s3.faultOf = () => faults[0];
    expect(await messageOf('read a/file')).to.equal(
      's3://backups/some/prefix refused a request: read a/file: 503 SlowDown. Wait, and run it again; what it has written so far counts',
    );
    expect(s3.requests).to.have.length(5);
  });

  it('a wrong secret, a wrong token and a wrong clock are explained by what to correct', async () => {
    const refused = 's3://backups/some/prefix refused a request: check the target:';
    const check = async (settings: Record<string, string>) =>
      messageOf('check the target', await open(settings));

    expect(await check({ AWS_SECRET_ACCESS_KEY: 'wrong' })).to.equal(
      `${refused} 403 SignatureDoesNotMatch. Check AWS_SECRET_ACCESS_KEY, and that nothing between changes requests`,
    );
    expect(await check({ AWS_SESSION_TOKEN: 'wrong' })).to.equal(
      `${refused} 400 InvalidToken. Check AWS_SESSION_TOKEN`,
    );
    expect(await check({ AWS_REGION: 'us-west-2' })).to.equal(
      `${refused} 400 AuthorizationHeaderMalformed. Check AWS_REGION`,
    );
    for (const clockOffsetMs of [3_600_000, -3_600_000]) {
      s3.clockOffsetMs = clockOffsetMs;
      expect(await check({})).to.equal(
        `${refused} 403 RequestTimeTooSkewed. Set the clock of this machine`,
      );
    }
  });

  it('an upload whose end fails with status 200 is no object, and leaves no parts in the store', async () => {
    s3.faultOf = request =>
      /^POST .*uploadId=/.test(request) ? { kind: 'error in the document' } : undefined;
    const target = await open();

    const large = target.write('large', bodyOf(Buffer.alloc(largeBytes)));

    expect(await large.catch((error: Error) => error.message)).to.match(
      /InternalError|refused|no response of S3/,
    );
    expect(s3.store.objects.has('some/prefix/large')).to.equal(false);
    expect(s3.store.uploads.size).to.equal(0);
  });

  it('a store that ends a list without naming its next page fails the list, which would lack archives', async () => {
    const target = await open();
    for (const name of ['a/1', 'a/2', 'a/3']) await target.write(name, bodyOf(Buffer.from('x')));
    s3.changeBody = body => body.replace(/<NextContinuationToken>.*<\/NextContinuationToken>/, '');

    expect(await messageOf('list a/', target)).to.equal(
      's3://backups/some/prefix ended a list without its next page: list a/. Try again',
    );
  });

  it('a full folder fails the write with what to do, leaves no file of it, and keeps the others', async function () {
    const run = promisify(execFile);
    await mkdir(join(folder, 'small'));
    const mounted = await run('mount', [
      '-t',
      'tmpfs',
      '-o',
      'size=1m',
      'tmpfs',
      join(folder, 'small'),
    ]).catch(() => undefined);
    if (!mounted) return this.skip(); // only root mounts

    try {
      const target = await openTarget(
        readConfig({ BACKUP_TARGET: join(folder, 'small') }).backup,
        limits,
      );
      await target.mark();
      await target.write('a/kept', bodyOf(Buffer.from('kept')));

      const refused = await target
        .write('a/large', bodyOf(randomBytes(3_000_000)))
        .catch((error: Error) => error.message);

      expect(refused).to.equal(
        `folder ${join(folder, 'small')} is full: write a/large (ENOSPC). Make room, then try again`,
      );
      expect(await readdir(join(folder, 'small', 'a'))).to.deep.equal(['kept']);
      await target.write('a/next', bodyOf(randomBytes(1_000)));
    } finally {
      await run('umount', [join(folder, 'small')]);
    }
  });

  it('a folder whose disk does not answer fails each call after the limit, and its message names the call', async () => {
    const target = await openTarget(readConfig({ BACKUP_TARGET: folder }).backup, limits);
    await target.mark();
    // Nobody reads this pipe, so that opening it to write takes for ever, as on a mount whose
    // server is away. The files of a process are opened by this many threads.
    const pipe = join(folder, 'pipe');
    const makePipe = 'mkfifo'; // knip takes a literal for a binary of this package
    execFileSync(makePipe, [pipe]);
    const threads = Number(process.env.UV_THREADPOOL_SIZE ?? 4);
    const opened = Promise.all(Array.from({ length: threads }, () => openFile(pipe, 'w')));

    const written = target
      .write('file', bodyOf(Buffer.from('x')))
      .catch((error: Error) => error.message);

    expect(await written).to.equal(
      `folder ${folder} was silent for 2 s: write file. Check its mount and its disk, then try again`,
    );
    const reader = spawn('cat', [pipe]);
    for (const file of await opened) await file.close();
    await once(reader, 'exit');
  });

  it('a folder in the place of an archive is no file: it is neither listed, read nor removed, and fails no removal', async () => {
    const target = await openTarget(readConfig({ BACKUP_TARGET: folder }).backup, limits);
    await target.mark();
    await mkdir(join(folder, 'a', 'archive'), { recursive: true });
    await writeFile(join(folder, 'b'), '');

    expect((await Array.fromAsync(target.list(''))).map(({ name }) => name)).to.deep.equal(['b']);
    for (const name of ['a/archive', 'b/archive']) {
      expect(await target.read(name).catch((error: Error) => error.name), name).to.equal(
        'MissingObjectError',
      );
      await target.remove(name);
    }

    expect((await stat(join(folder, 'a', 'archive'))).isDirectory()).to.equal(true);
    const written = target
      .write('a/archive', bodyOf(Buffer.from('x')))
      .catch((error: Error) => error.message);
    expect(await written).to.equal(
      `folder ${folder} has a folder in the place of a file: write a/archive (EISDIR). Move it away, then try again`,
    );
    expect(await Array.fromAsync(target.list('a/'))).to.deep.equal([]);
  });
});

function bodyOf(...chunks: Buffer[]): Readable {
  return Readable.from(chunks, { objectMode: false });
}
