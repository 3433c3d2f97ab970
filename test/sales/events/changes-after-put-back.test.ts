import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import type { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { type OwnServer, startOwnServer } from '../../support/own-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { controlSql, createWorld, type World } from '../../support/world.ts';
import { type Receiver, startReceiver } from '../webhooks/receiver.ts';
import { follow } from './follow.ts';

describe('the feed of changes of a server whose files are put back to a snapshot', () => {
  let world: World;
  let receiver: Receiver;
  let server: OwnServer;
  let admin: Client;
  let globex: Client;

  before(async () => {
    receiver = await startReceiver();
    [world, server] = await Promise.all([
      createWorld({ ACQUIRE_TIMEOUT_MS: '9000', WEBHOOK_TRUSTED_RECEIVERS: receiver.trusted }),
      startOwnServer('put-back', ['fsync=off', 'max_connections=50', 'autovacuum=off']),
    ]);
    [admin, globex] = [await world.login(world.acme), await world.login(world.globex)];
    await tenant(['server', 'add', 'second'], server.url);
    await tenant(['move', 'acme', '--to', 'second', '--pause', '60']);
    await tenant(['move', 'globex', '--to', 'second', '--pause', '60']);
    const hook = { Url: receiver.url('/hook'), Payload: 'record', Resources: ['OrderStatus'] };
    expect((await admin.post('/api/v1/Webhooks', hook)).status).to.equal(201);
  });
  after(async () => {
    await world.close();
    await server.close();
    await receiver.close();
  });

  const tenant = async (words: string[], input?: string): Promise<void> => {
    const { code, stderr } = await runCommand('scripts/tenant.ts', words, world.environment, input);
    expect(code, stderr).to.equal(0);
  };
  const create = (client: Client, Name: string) =>
    eventually(async () => (await client.post('/api/v1/OrderStatuses', { Name })).status === 201);
  /** Writes past the service, which learns of nothing: nobody reads the feed. */
  async function writePast(slug: string, names: readonly string[]): Promise<void> {
    const [row] = await controlSql<{ name: string }>(
      world,
      `select database_name as name from tenants where slug = '${slug}'`,
    );
    await withConnection(databaseUrl(server.url, row!.name), async client => {
      for (const name of names) {
        await client.query('insert into order_statuses (name) values ($1)', [name]);
      }
    });
  }
  const changesAfter = (client: Client, cursor: string) =>
    eventually(async () => {
      const response = await client.get(
        `/api/v1/Changes?after=${cursor}&include=record&limit=1000`,
      );
      return response.status !== 503 && response;
    });
  const codeAfter = async (client: Client, cursor: string) => {
    const { status, body } = await changesAfter(client, cursor);
    return [status, body.code];
  };
  const expectNames = (client: Client, cursor: string, names: readonly string[]) =>
    eventually(async () => {
      const { status, body } = await changesAfter(client, cursor);
      expect(status, JSON.stringify(body)).to.equal(200);
      expect(body.map(({ Record }: { Record: { Name: string } }) => Record.Name)).to.deep.equal(
        names,
      );
      return true;
    });
  const now = async (client: Client): Promise<string> =>
    (await changesAfter(client, 'now')).headers.get('next-cursor') ?? '';
  const received = () =>
    receiver.messages.flatMap(
      ({ body }) => (body.data.Record as { Name?: string } | undefined)?.Name ?? [],
    );
  const gaps = () => receiver.messages.filter(({ body }) => body.type === 'webhook.gap');

  it('a crash of the server does not count as put back: cursors and streams go on, and a webhook gets no gap', async () => {
    const [cursor, earlier] = [await now(admin), gaps().length];
    await create(admin, 'before the crash');
    await eventually(() => received().includes('before the crash'));
    await server.crash();
    await server.restart();

    await create(admin, 'after the crash');
    await eventually(() => received().includes('after the crash'));

    await expectNames(admin, cursor, ['before the crash', 'after the crash']);
    expect(gaps()).to.have.length(earlier);
  });

  it('cursors and streams from after the snapshot get 410, those from before it every change, and a webhook a gap', async () => {
    const [common, quiet, earlier] = [await now(admin), await now(globex), gaps().length];
    await create(admin, 'kept');
    await eventually(() => received().includes('kept'));
    await server.takeSnapshot();
    for (const name of ['lost 1', 'lost 2']) await create(admin, name);
    await eventually(() => received().includes('lost 2'));
    const following = await follow(admin);
    const lost = await now(admin);
    await writePast('globex', ['lost of globex']);
    const lostQuiet = await eventually(async () => {
      const { headers, body } = await changesAfter(globex, quiet);
      return body.length === 1 && headers.get('next-cursor');
    });
    await server.putBack();
    await server.restart();

    const later = Array.from({ length: 20 }, (_, index) => `later ${index}`);
    await writePast('globex', later);
    await create(admin, 'later');
    await eventually(() => received().includes('later'));

    expect(await codeAfter(admin, lost)).to.deep.equal([410, 'cursor_expired']);
    expect(await codeAfter(globex, String(lostQuiet))).to.deep.equal([410, 'cursor_expired']);
    await expectNames(admin, common, ['kept', 'later']);
    await expectNames(globex, quiet, later);
    let last = await following.next();
    while (last && last.event !== 'end') last = await following.next();
    expect(
      last?.data.Reason,
      'a stream that reads while its server is away cannot know more',
    ).to.be.oneOf(['cursor_expired', 'unavailable']);
    const resumed = await follow(admin, '', { 'Last-Event-ID': String(following.lastId) });
    expect(resumed.problem?.code).to.equal('cursor_expired');
    expect(gaps()).to.have.length(earlier + 1);
    const ids = receiver.messages
      .filter(({ body }) => body.type !== 'webhook.gap')
      .map(({ id, body }) => [id, body]);
    expect(
      new Map(ids.map(([id, body]) => [id, JSON.stringify(body)])).size,
      'no id of a lost change is used again',
    ).to.equal(new Set(ids.map(([, body]) => JSON.stringify(body))).size);
  });
});
