import { expect } from 'chai';
import { databaseUrl, serverAddressUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import type { Client } from '../../support/client.ts';
import { type CopiedServer, copyServer } from '../../support/copied-server.ts';
import { eventually } from '../../support/eventually.ts';
import { type OwnServer, startOwnServer } from '../../support/own-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { controlSql, createWorld, sql, type World } from '../../support/world.ts';
import { type Receiver, startReceiver } from '../webhooks/receiver.ts';
import { follow } from './follow.ts';

describe('the feed of changes over databases', () => {
  let world: World;
  let receiver: Receiver;
  let primary: OwnServer;
  let standby: CopiedServer | undefined;
  let admin: Client;
  let globex: Client;

  before(async () => {
    receiver = await startReceiver();
    [world, primary] = await Promise.all([
      createWorld({ ACQUIRE_TIMEOUT_MS: '9000', WEBHOOK_TRUSTED_RECEIVERS: receiver.trusted }),
      startOwnServer('primary', ['fsync=off', 'max_connections=50'], { isNew: true }),
    ]);
    [admin, globex] = [await world.login(world.acme), await world.login(world.globex)];
    await tenant(['server', 'add', 'second'], primary.url);
  });
  after(async () => {
    await world.close();
    await primary.close();
    await standby?.close();
    await receiver.close();
  });

  const tenant = async (words: string[], input?: string): Promise<void> => {
    const { code, stderr } = await runCommand('scripts/tenant.ts', words, world.environment, input);
    expect(code, stderr).to.equal(0);
  };
  const create = (Name: string, client = admin) => client.post('/api/v1/OrderStatuses', { Name });
  async function namesAfter(cursor: string): Promise<string[]> {
    const { status, body } = await admin.get(
      `/api/v1/Changes?after=${cursor}&include=record&limit=1000`,
    );
    expect(status, JSON.stringify(body)).to.equal(200);
    return body.map(({ Record }: { Record: { Name: string } }) => Record.Name);
  }
  async function databaseOf(): Promise<string> {
    const text = `select database_name as name from tenants where slug = 'acme'`;
    const [row] = await controlSql<{ name: string }>(world, text);
    return row?.name ?? '';
  }
  /** A transaction of another test may hold changes back for a moment. */
  const expectNames = (cursor: string, names: string[]) =>
    eventually(async () => {
      expect(await namesAfter(cursor)).to.deep.equal(names);
      return true;
    });
  const now = async (client = admin): Promise<string> =>
    (await client.get('/api/v1/Changes?after=now')).headers.get('next-cursor') ?? '';

  it('a cursor and a stream continue over moves there and back, and lose and repeat nothing', async () => {
    const cursor = await now();
    const following = await follow(admin, '?include=record');

    await create('before');
    await tenant(['move', 'acme', '--to', 'second', '--pause', '60']);
    await create('there');
    await expectNames(cursor, ['before', 'there']);

    const between = await now();
    await tenant(['move', 'acme', '--back', '--pause', '60']);
    await create('back');
    await expectNames(cursor, ['before', 'there', 'back']);
    await expectNames(between, ['back']);

    const streamed: string[] = [];
    while (streamed.length < 3) streamed.push((await following.next())?.data?.Record?.Name);
    expect(streamed).to.deep.equal(['before', 'there', 'back']);
    following.close();
  });

  it('a cursor continues over moves when the clock of the former server is ahead, and the database names its cluster', async () => {
    const adminUrl = databaseUrl(postgresUrl(), await databaseOf());
    await sql({ adminUrl }, 'update tenant_identity set feed_era = feed_era + 86400000');
    const cursor = await now();

    await create('ahead');
    await tenant(['move', 'acme', '--to', 'second', '--pause', '60']);
    await create('ahead, there');
    const [identity] = await sql<{ isOfCluster: boolean }>(
      { adminUrl: databaseUrl(primary.url, await databaseOf()) },
      'select system_identifier = system_identifier() as "isOfCluster" from tenant_identity',
    );
    expect(identity).to.deep.equal({ isOfCluster: true });
    await tenant(['move', 'acme', '--back', '--pause', '60']);
    await create('ahead, back');

    await expectNames(cursor, ['ahead', 'ahead, there', 'ahead, back']);
  });

  it('when the standby lacks the last commits, cursors get 410, and an endpoint gets webhook.gap and every later change', async () => {
    const third = await startOwnServer('third', ['fsync=off', 'max_connections=50'], {
      isNew: true,
    });
    await tenant(['server', 'add', 'third'], third.url);
    await tenant(['move', 'globex', '--to', 'third', '--pause', '60']);
    const names = () =>
      receiver.messages.flatMap(
        ({ body }) => (body.data.Record as { Name?: string } | undefined)?.Name ?? [],
      );
    const hook = { Url: receiver.url('/hook'), Payload: 'record', Resources: ['OrderStatus'] };
    expect((await globex.post('/api/v1/Webhooks', hook)).status).to.equal(201);
    await create('kept', globex);
    await eventually(() => names().includes('kept'));

    standby = await copyServer(third.url, {
      recovers: true,
      extraSettings: ['max_connections=50'],
    });
    for (const name of ['lost 1', 'lost 2', 'lost 3']) await create(name, globex);
    await eventually(() => names().includes('lost 3'));
    const cursor = await now(globex);
    await withConnection(standby.url, client => client.query('select pg_promote()'));
    const sealed = world.installation.secrets.seal(standby.url, 'server_url:third');
    await controlSql(world, `update servers set admin_url = ?, address = ? where name = 'third'`, [
      sealed,
      serverAddressUrl(standby.url),
    ]);
    await third.close();

    const later = ['later 1', 'later 2', 'later 3', 'later 4', 'later 5'];
    for (const name of later) {
      await eventually(async () => (await create(name, globex)).status === 201);
    }
    const { status, body } = await globex.get(`/api/v1/Changes?after=${cursor}`);
    expect(status).to.equal(410);
    expect(body.code).to.equal('cursor_expired');
    await eventually(() => names().includes('later 5'));
    expect(names()).to.deep.equal(['kept', 'lost 1', 'lost 2', 'lost 3', ...later]);
    const types = receiver.messages.map(({ body }) => body.type);
    expect(types.filter(type => type === 'webhook.gap')).to.have.length(1);
    expect(new Set(receiver.messages.map(({ id }) => id)).size, 'an id of its own').to.equal(
      types.length,
    );
  });
});
