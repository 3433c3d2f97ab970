import { readFile, rename, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/embedded/postgres.ts';
import { withConnection } from '../../src/postgres/connection.ts';
import { eventually } from '../support/eventually.ts';
import { makeServerFolder } from '../support/server-folder.ts';

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
      client.query('select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()'),
    );
    await eventually(() =>
      withConnection(service.url, async client => {
        const { rowCount } = await client.query(`select from pg_locks where locktype = 'advisory' and granted`);
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
});
