import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { databaseUrl, serverAddressUrl } from '../../src/control/server-urls.ts';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/lib/embedded/postgres.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { addServer } from '../../src/operator/servers/add-server.ts';
import { type Receiver, startReceiver } from '../sales/webhooks/receiver.ts';
import { eventually } from '../support/eventually.ts';
import { runCommand } from '../support/run-command.ts';
import { Standby } from '../support/standby.ts';
import { controlSql, createWorld, type World } from '../support/world.ts';

const path = '/api/v1/Currency';

describe('drill: a standby', () => {
  let receiver: Receiver;
  let world: World;
  let folder: string;
  let primary: EmbeddedPostgres;
  let standby: Standby;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'backoffice-standby-'));
    receiver = await startReceiver();
    [world, primary] = await Promise.all([
      createWorld({ WEBHOOK_TRUSTED_RECEIVERS: receiver.trusted }),
      startEmbeddedPostgres(join(folder, 'primary')),
    ]);
    await addServer(world.installation, 'second', primary.url, { capacity: 100 });
  });
  after(async () => {
    await world.close();
    await standby?.close();
    await primary.leave();
    await receiver.close();
    await rm(folder, { recursive: true, force: true });
  });

  /** Lets the name of the second server lead to another one. */
  async function pointTo(url: string): Promise<void> {
    const sealed = world.installation.secrets.seal(url, 'server_url:second');
    await controlSql(world, `update servers set admin_url = ?, address = ? where name = 'second'`, [
      sealed,
      serverAddressUrl(url),
    ]);
  }

  it('a response that was read from a standby is not cached', async () => {
    const tenant = await world.provision('far', 'second');
    const { database } = tenant;
    const client = await world.login(tenant);
    const { body: currency } = await client.post(path, { Code: 'EUR', Name: 'Euro' });
    const name = async () => (await client.get(`${path}/${currency.Id}`)).body.Name;
    expect(await name()).to.equal('Euro');

    standby = await Standby.start(primary.url, join(folder, 'primary'), join(folder, 'standby'));
    await pointTo(standby.url);
    await eventually(
      async () =>
        (await client.put(`${path}/${currency.Id}`, { Code: 'EUR', Name: 'Euro' })).status === 503,
    );
    for (let i = 0; i < 3; i++) expect(await name()).to.equal('Euro');

    await withConnection(databaseUrl(primary.url, database), admin =>
      admin.query(`update currencies set name = 'Changed'`),
    );
    await eventually(async () => {
      const { rows } = await withConnection(databaseUrl(standby.url, database), client =>
        client.query<{ name: string }>('select name from currencies'),
      );
      return rows[0]?.name === 'Changed';
    });
    expect(await name()).to.equal('Changed');
  });

  it('a standby that lacks nothing keeps cursors when it is promoted, and a webhook goes on without a gap, also over moves before and after', async () => {
    await pointTo(primary.url);
    const words = ['move', 'acme', '--to', 'second', '--pause', '60'];
    const { code, stderr } = await runCommand('scripts/tenant.ts', words, world.environment);
    expect(code, stderr).to.equal(0);
    const client = await world.login(world.acme);
    const create = async (Code: string): Promise<string> => {
      const { body } = await eventually(async () => {
        const response = await client.post(path, { Code, Name: Code });
        return response.status === 201 && response;
      });
      return String(body.Id);
    };
    const hook = { Url: receiver.url('/hook'), Resources: ['Currency'] };
    expect((await client.post('/api/v1/Webhooks', hook)).status).to.equal(201);
    const cursor = (await client.get('/api/v1/Changes?after=now')).headers.get('next-cursor');
    const before = await create('XAA');
    const keys = () => receiver.at('/hook').map(({ body }) => body.data.Key);
    await eventually(() => keys().includes(before));

    await world.service.stop();
    await standby.promote();
    await pointTo(standby.url);
    const { url } = await world.startAnotherServer();
    const promoted = client.at(url);
    const { body } = await eventually(async () => {
      const response = await promoted.post(path, { Code: 'XAB', Name: 'after' });
      return response.status === 201 && response;
    });

    const created = [before, String(body.Id)];
    await eventually(() => keys().length >= created.length);
    expect(keys()).to.deep.equal(created);
    expect(receiver.at('/hook').map(message => message.body.type)).to.not.include('webhook.gap');
    const changes = await eventually(async () => {
      const response = await promoted.get(`/api/v1/Changes?after=${cursor}`);
      expect(response.status, JSON.stringify(response.body)).to.equal(200);
      return response.body.length >= created.length && response.body;
    });
    expect(changes.map(({ Key }: { Key: string }) => Key)).to.deep.equal(created);

    const back = ['move', 'acme', '--to', 'default', '--pause', '60'];
    const moved = await runCommand('scripts/tenant.ts', back, world.environment);
    expect(moved.code, moved.stderr).to.equal(0);
    const last = await promoted.post(path, { Code: 'XAC', Name: 'after the move' });
    created.push(String(last.body.Id));
    await eventually(() => keys().length >= created.length);
    expect(keys()).to.deep.equal(created);
    const later = await promoted.get(`/api/v1/Changes?after=${cursor}`);
    expect(later.body.map(({ Key }: { Key: string }) => Key)).to.deep.equal(created);
  });
});
