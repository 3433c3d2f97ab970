import { spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFile, readlink, rename, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import {
  type EmbeddedPostgres,
  startEmbeddedPostgres,
} from '../../../src/lib/embedded/postgres.ts';
import { isClaimed } from '../../../src/lib/embedded/server-claim.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { startProgram } from '../../support/command-line.ts';
import { eventually } from '../../support/eventually.ts';
import { makeServerFolder } from '../../support/server-folder.ts';

describe('embedded PostgreSQL', () => {
  let parent: string;
  let folder: string;
  const joined: EmbeddedPostgres[] = [];

  before(async () => {
    parent = await makeServerFolder('embedded');
    folder = join(parent, 'data');
  });
  afterEach(async () => {
    for (const each of joined.splice(0)) await each.leave();
  });
  after(() => rm(parent, { recursive: true, force: true }));

  async function startOrJoin(path = folder): Promise<EmbeddedPostgres> {
    const postgres = await startEmbeddedPostgres(path);
    joined.push(postgres);
    return postgres;
  }

  const isServing = ({ url }: EmbeddedPostgres): Promise<boolean> =>
    withConnection(url, async client => (await client.query('select 1')).rowCount === 1);
  const postmaster = async (path = folder): Promise<number> =>
    Number((await readFile(join(path, 'postgres', 'postmaster.pid'), 'utf8')).split('\n')[0]);

  it('three concurrent starts share one embedded server, on a new folder and on one whose server has stopped', async () => {
    for (let round = 0; round < 2; round++) {
      const all = await Promise.all(Array.from({ length: 3 }, () => startOrJoin()));
      expect(new Set(all.map(({ url }) => url)).size).to.equal(1);
      for (const each of joined.splice(0)) await each.leave();
    }
  });

  it('a process whose connection was cut still keeps the embedded server running', async () => {
    const service = await startOrJoin();
    await withConnection(service.url, client =>
      client.query(
        'select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()',
      ),
    );

    await eventually(() =>
      withConnection(service.url, async client => {
        const { rowCount } = await client.query(
          `select from pg_locks where locktype = 'advisory' and granted`,
        );
        return rowCount === 1;
      }),
    );

    await (await startEmbeddedPostgres(folder)).leave();
    expect(await isServing(service)).to.equal(true);
  });

  it('a folder has one embedded server, also after it was renamed or under a second name', async () => {
    const first = await startOrJoin();
    const pid = await postmaster();
    const moved = join(parent, 'moved');
    await rename(folder, moved);
    const second = await startOrJoin(moved);
    expect(second.url).to.equal(first.url);
    await symlink(moved, join(parent, 'link'));
    expect((await startOrJoin(join(parent, 'link'))).url).to.equal(first.url);
    expect(await postmaster(moved)).to.equal(pid);
  });

  describe('with the pid file of a server that was killed', () => {
    const own = (): string => join(parent, 'own');
    const otherNamespace = ['--pid', '--fork', '--mount-proc'];
    const inOtherNamespace = () =>
      startProgram('unshare', [...otherNamespace, 'bin/backoffice', 'list'], {
        DATA_DIR: own(),
        MASTER_KEY: randomBytes(32).toString('base64'),
      }).ended;

    async function expectRefused(): Promise<void> {
      const { code, stderr } = await inOtherNamespace();
      expect(code).to.equal(1);
      expect(stderr).to.equal(
        `${own()}/postgres/postmaster.pid belongs to a PostgreSQL that cannot be seen from here, such as one in another ` +
          'container. Stop it; if none runs on these data, remove the file.\n',
      );
    }

    before(async function () {
      const isFirst = (await readlink('/proc/self/ns/pid').catch(() => '')) === 'pid:[4026531836]';
      if (!isFirst || spawnSync('unshare', [...otherNamespace, 'true']).status !== 0) this.skip();
    });

    it('without its socket, a command that sees all processes starts it again, and one in a container is refused', async () => {
      // given
      const killed = await startOrJoin(own());
      process.kill(await postmaster(own()), 'SIGKILL');
      await eventually(() => isClaimed(own()).then(isHeld => !isHeld));
      await rm(join(own(), 'running'), { recursive: true });

      // when, then
      await expectRefused();
      expect(await isServing(await startOrJoin(own()))).to.equal(true);
      await killed.leave();
    });

    it('nobody starts a second server beside one that runs and has lost its socket', async () => {
      // given
      const first = await startOrJoin(own());
      const pid = await postmaster(own());
      await rm(join(own(), 'running'), { recursive: true });

      // when, then
      await expectRefused();
      await startOrJoin(own());
      expect(await postmaster(own())).to.equal(pid);
      expect(await isServing(first)).to.equal(true);
    });

    it('a PostgreSQL in sight that works in the folder keeps the file, though its socket refuses connections', async () => {
      // given: so a mount of another kind (FUSE) shows the server of a folder
      const killed = await startOrJoin(own());
      process.kill(await postmaster(own()), 'SIGKILL');
      await eventually(() => isClaimed(own()).then(isHeld => !isHeld));
      const elsewhere = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], {
        argv0: 'postgres',
        cwd: join(own(), 'postgres'),
      });

      // when, then
      const failure = await startEmbeddedPostgres(own()).catch((error: Error) => error.message);
      expect(failure).to.include('under another mount of the folder');
      elsewhere.kill();
      await once(elsewhere, 'exit');
      expect(await isServing(await startOrJoin(own()))).to.equal(true);
      await killed.leave();
    });
  });
});
