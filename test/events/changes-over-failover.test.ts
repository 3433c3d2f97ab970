import { expect } from 'chai';
import { serverAddressUrl } from '../../src/control/server-urls.ts';
import { withConnection } from '../../src/postgres/connection.ts';
import { type CopiedServer, copyServer } from '../support/copied-server.ts';
import { eventually } from '../support/eventually.ts';
import { type OwnServer, startOwnServer } from '../support/own-server.ts';
import { runCommand } from '../support/run-command.ts';
import { createWorld, type World } from '../support/world.ts';
import { type Receiver, startReceiver } from '../webhooks/receiver.ts';

describe('the feed of changes over a failover of PostgreSQL', () => {
  let world: World;
  let receiver: Receiver;
  let primary: OwnServer;
  let standby: CopiedServer | undefined;

  before(async () => {
    receiver = await startReceiver();
    [world, primary] = await Promise.all([
      createWorld({ WEBHOOK_TRUSTED_RECEIVERS: receiver.trusted }),
      startOwnServer('primary', ['fsync=off', 'max_connections=50']),
    ]);
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

  it('when the standby lacks the last commits, cursors get 410, and an endpoint gets webhook.gap and every later change', async () => {
    await tenant(['server', 'add', 'second'], primary.url);
    await tenant(['move', 'acme', '--to', 'second', '--pause', '60']);
    const admin = await world.login(world.acme);
    const create = (Name: string) => admin.post('/api/v1/OrderStatuses', { Name });
    const names = () =>
      receiver.messages.flatMap(({ body }) => (body.data.Record as { Name?: string } | undefined)?.Name ?? []);
    const hook = { Url: receiver.url('/hook'), Payload: 'record', Resources: ['OrderStatus'] };
    expect((await admin.post('/api/v1/Webhooks', hook)).status).to.equal(201);
    await create('kept');
    await eventually(() => names().includes('kept'));

    standby = await copyServer(primary.url, { recovers: true, extraSettings: ['max_connections=50'] });
    for (const name of ['lost 1', 'lost 2', 'lost 3']) await create(name);
    await eventually(() => names().includes('lost 3'));
    const { headers } = await admin.get('/api/v1/Changes?after=now');
    const cursor = headers.get('next-cursor') ?? '';
    await withConnection(standby.url, client => client.query('select pg_promote()'));
    const sealed = world.installation.secrets.seal(standby.url, 'server_url:second');
    await world.control.em
      .fork()
      .execute(`update servers set admin_url = ?, address = ? where name = 'second'`, [
        sealed,
        serverAddressUrl(standby.url),
      ]);
    await primary.close();

    const later = ['later 1', 'later 2', 'later 3', 'later 4', 'later 5'];
    for (const name of later) await eventually(async () => (await create(name)).status === 201);
    const { status, body } = await admin.get(`/api/v1/Changes?after=${cursor}`);
    expect([status, body.code]).to.deep.equal([410, 'cursor_expired']);
    await eventually(() => names().includes('later 5'));
    expect(names()).to.deep.equal(['kept', 'lost 1', 'lost 2', 'lost 3', ...later]);
    const types = receiver.messages.map(({ body }) => body.type);
    expect(types.filter(type => type === 'webhook.gap')).to.have.length(1);
    expect(new Set(receiver.messages.map(({ id }) => id)).size, 'an id of its own').to.equal(types.length);
  });
});
