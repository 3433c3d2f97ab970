import { expect } from 'chai';
import type { Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { useServerFolder } from '../support/server-folder.ts';
import { TwoServers } from '../support/two-servers.ts';
import type { World } from '../support/world.ts';
import { follow } from './follow.ts';

describe('the feed of changes over databases', () => {
  let servers: TwoServers;
  let world: World;
  const archives = useServerFolder('archives');
  let admin: Client;

  before(async () => {
    servers = await TwoServers.start({ ACQUIRE_TIMEOUT_MS: '9000', BACKUP_TARGET: archives });
    ({ world } = servers);
    admin = await world.login(world.acme);
  });
  after(async () => {
    await servers.close();
  });

  const create = (Name: string) => admin.post('/api/v1/OrderStatuses', { Name });
  async function namesAfter(cursor: string): Promise<string[]> {
    const { status, body } = await admin.get(`/api/v1/Changes?after=${cursor}&include=record&limit=1000`);
    expect(status, JSON.stringify(body)).to.equal(200);
    return body.map(({ Record }: { Record: { Name: string } }) => Record.Name);
  }
  /** A transaction of another test may hold changes back for a moment. */
  const expectNames = (cursor: string, names: string[]) =>
    eventually(async () => {
      expect(await namesAfter(cursor)).to.deep.equal(names);
      return true;
    });
  const now = async (): Promise<string> =>
    (await admin.get('/api/v1/Changes?after=now')).headers.get('next-cursor') ?? '';

  it('a cursor and a stream continue over moves there and back, and lose and repeat nothing', async () => {
    const cursor = await now();
    const following = await follow(admin, '?include=record');
    await create('before');
    await servers.move('acme', '--to', 'second');
    await create('there');
    await expectNames(cursor, ['before', 'there']);
    const between = await now();
    await servers.move('acme', '--back');
    await create('back');
    await expectNames(cursor, ['before', 'there', 'back']);
    await expectNames(between, ['back']);
    const streamed: string[] = [];
    while (streamed.length < 3) streamed.push((await following.next())?.data?.Record?.Name);
    expect(streamed).to.deep.equal(['before', 'there', 'back']);
    following.close();
  });

  it('a cursor from before a restore gets 410; one from after it continues, until the restore is undone', async () => {
    await servers.runWell(['backup', 'init']);
    await servers.runWell(['backup', 'run', '--all']);
    await create('undone by the restore');
    const before = await now();
    await servers.runWell(['restore', 'acme', '--archive', 'latest', '--json']);
    await servers.runWell(['restore', 'swap', 'acme', '--yes']);
    const code = async (cursor: string) => (await admin.get(`/api/v1/Changes?after=${cursor}`)).body.code;
    expect(await code(before)).to.equal('cursor_expired');
    const restored = await now();
    await create('after the restore');
    await expectNames(restored, ['after the restore']);
    const history = await eventually(async () => {
      const { body } = await admin.get('/api/v1/Changes?limit=1000&include=record');
      return body.at(-1).Record.Name === 'after the restore' && body;
    });
    await expectNames(history.at(-2).Id, ['after the restore']);
    await servers.runWell(['restore', 'back', 'acme', '--yes']);
    expect([await code(restored), await code(before)]).to.deep.equal(['cursor_expired', 'cursor_expired']);
  });
});
