import { execFile } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import { mkdir, rm, statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { startEmbeddedPostgres, stopServer } from '../../src/lib/embedded/postgres.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { backupSettings } from '../support/backup-settings.ts';
import { runScript, startScript } from '../support/command-line.ts';
import { faultOfEnd } from '../support/ended-commands.ts';
import { eventually } from '../support/eventually.ts';
import { copyDedicatedTemplate, dedicatedControl } from '../support/server-templates.ts';
import { quickSettings } from '../support/test-server.ts';

const call = promisify(execFile);
const megabyte = 1024 ** 2;
const settings = [...quickSettings, 'autovacuum=off', 'max_wal_size=64MB', 'min_wal_size=32MB'];
/** Enough for the copy to begin, with its write-ahead log and a tenth of the disk. */
const diskMb = 1_500;
/** What is left of the disk when a copy has begun. */
const leftMb = 12;
const rows = 400_000;
const writeEveryMs = 300;

describe('drill: a server whose disk becomes full while a database is copied', function () {
  this.timeout(1_800_000);
  const mount = join(tmpdir(), `backoffice-full-${randomUUID()}`);
  const folder = join(mount, 'server');
  const archives = `${mount}-archives`;
  let environment: Record<string, string>;
  let url: string;

  const run = (...args: string[]) => runScript('scripts/tenant.ts', args, environment);
  const runWell = async (...args: string[]): Promise<string> => {
    const { code, stdout, stderr } = await run(...args);
    expect(code, `${args.join(' ')}: ${stdout}${stderr}`).to.equal(0);
    return stdout;
  };
  const query = async <Row extends object>(text: string, database = 'postgres'): Promise<Row[]> =>
    withConnection(
      databaseUrl(url, database),
      async client => (await client.query<Row>(text)).rows,
    );
  const databases = async (): Promise<string[]> =>
    (await query<{ name: string }>('select datname as name from pg_database order by 1')).map(
      ({ name }) => name,
    );
  const databaseOf = async (slug: string): Promise<string> =>
    JSON.parse(await runWell('show', slug, '--json')).database;

  before(async function () {
    await mkdir(mount);
    const size = `size=${diskMb}m`;
    await call('mount', ['-t', 'tmpfs', '-o', size, 'tmpfs', mount]).catch(() => this.skip());
    await mkdir(folder, { mode: 0o755 });
    await copyDedicatedTemplate(folder);
    ({ url } = await startEmbeddedPostgres(folder, { settings }));

    await mkdir(archives);
    environment = {
      DATABASE_URL: databaseUrl(url, dedicatedControl),
      MASTER_KEY: randomBytes(32).toString('base64'),
      ...(await backupSettings(archives)),
    };
    for (const slug of ['acme', 'globex']) {
      await runWell('provision', slug, '--name', slug, '--admin-email', `admin@${slug}.test`);
    }
    await query(
      `create table notes as select n as id, repeat(md5(n::text), 4) as note from generate_series(1, ${rows}) n`,
      await databaseOf('acme'),
    );
    await query('checkpoint');
    await runWell('backup', 'init');
    await runWell('backup', 'run', '--all');
  });
  after(async () => {
    await stopServer(join(folder, 'postgres'));
    await call('umount', [mount]);
    for (const path of [mount, archives]) await rm(path, { recursive: true, force: true });
  });

  const resize = (megabytes: number) =>
    call('mount', ['-o', `remount,size=${Math.ceil(megabytes)}m`, mount]);
  const usedMb = async (): Promise<number> => {
    const { blocks, bfree, bsize } = await statfs(mount);
    return ((blocks - bfree) * bsize) / megabyte;
  };

  /** What meets the end of the disk first. PostgreSQL stops when its write-ahead log does. */
  const limits = {
    'a table': async () => {},
    'the write-ahead log': () =>
      query(
        `select pg_logical_emit_message(false, 'full', repeat(md5(n::text), 32000)) from generate_series(1, 200) n`,
      ).catch(() => {}),
  };

  const commands = {
    clone: ['clone', 'acme', 'acme-copy'],
    restore: ['restore', 'acme', '--archive', 'latest'],
    'backup drill': ['backup', 'drill', '--count', '2'],
  };

  it('a copy for which the disk has no room is not begun, and the refusal has both numbers', async () => {
    const before = await databases();
    await resize((await usedMb()) + 150);

    for (const [name, args] of Object.entries(commands)) {
      const { code, stdout, stderr } = await run(...args);
      console.log(`      ${name}: exit ${code}: ${`${stdout}${stderr}`.trim()}`);

      expect(code, name).to.equal(1);
      expect(stdout + stderr, name).to.match(/needs .* MiB on default, .* MiB free: /);
    }

    expect(await databases()).to.deep.equal(before);
    await resize(diskMb);
  });

  for (const [name, args] of Object.entries(commands)) {
    for (const [file, meet] of Object.entries(limits)) {
      it(`a ${name} for which ${file} has no room when it has begun ends with a sentence and exit code 1, and works when there is room, with nothing left of the first one`, async () => {
        const before = await databases();
        const database = await databaseOf('globex');
        const writes = { done: 0, failed: 0 };
        const ending = new AbortController();

        const write = async (): Promise<void> => {
          while (!ending.signal.aborted) {
            await query(
              `insert into currencies (code, name) values (left(md5(random()::text), 8), 'x')`,
              database,
            ).then(
              () => writes.done++,
              () => writes.failed++,
            );
            await sleep(writeEveryMs);
          }
        };
        const writing = write();

        const running = startScript('scripts/tenant.ts', args, environment);
        running.process.stdin.end();
        const hasBegun = async () =>
          running.process.exitCode !== null || (await databases()).length > before.length;
        await eventually(hasBegun).finally(() => ending.abort());
        await resize((await usedMb()) + leftMb);
        await meet();
        const ended = await running.ended;
        await resize(diskMb);
        await writing;

        const isRunning = await eventually(() => query('select 1'), 30_000).then(
          () => true,
          () => false,
        );
        if (!isRunning) {
          ({ url } = await startEmbeddedPostgres(folder, { settings }));
          environment.DATABASE_URL = databaseUrl(url, dedicatedControl);
        }
        const left = (await databases()).filter(each => !before.includes(each));
        console.log(
          `      ${name}: exit ${ended.code}: ${`${ended.stdout}${ended.stderr}`.trim()}\n` +
            `      writes of globex: ${writes.done} done, ${writes.failed} failed; the server ` +
            `${isRunning ? 'runs' : 'had ended'}; left: ${left.join(', ') || 'nothing'}`,
        );
        expect(faultOfEnd(ended)).to.equal(undefined);
        expect(ended.code).to.equal(1);

        await runWell(...args);
        const now = (await databases()).filter(each => !before.includes(each));
        expect(now).to.have.length(name === 'backup drill' ? 0 : 1);
        if (name === 'clone') {
          await runWell('delete', 'acme-copy', '--yes');
          await runWell('purge', 'acme-copy', '--yes');
        }
        if (name === 'restore') await runWell('databases', 'drop', 'acme', now[0] ?? '', '--yes');
      });
    }
  }
});
