import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { databaseUrl, serverAddressUrl } from '../../src/control/server-urls.ts';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../../src/lib/embedded/postgres.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { addServer } from '../../src/operator/fleet/servers/add-server.ts';
import { eventually } from '../support/eventually.ts';
import { Standby } from '../support/standby.ts';
import { controlSql, createWorld, type World } from '../support/world.ts';

const path = '/api/v1/Currency';

describe('drill: reads that reach a standby', () => {
  let world: World;
  let folder: string;
  let primary: EmbeddedPostgres;
  let standby: Standby;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'backoffice-standby-'));
    [world, primary] = await Promise.all([
      createWorld(),
      startEmbeddedPostgres(join(folder, 'primary')),
    ]);
    await addServer(world.installation, 'second', primary.url, 100);
  });
  after(async () => {
    await world.close();
    await standby?.close();
    await primary.leave();
    await rm(folder, { recursive: true, force: true });
  });

  it('a response that was read from a standby is not cached', async () => {
    const tenant = await world.provision('far', 'second');
    const { database } = tenant;
    const client = await world.login(tenant);
    const { body: currency } = await client.post(path, { Code: 'EUR', Name: 'Euro' });
    const name = async () => (await client.get(`${path}/${currency.Id}`)).body.Name;
    expect(await name()).to.equal('Euro');

    standby = await Standby.start(primary.url, join(folder, 'primary'), join(folder, 'standby'));
    const sealed = world.installation.secrets.seal(standby.url, 'server_url:second');
    await controlSql(world, `update servers set admin_url = ?, address = ? where name = 'second'`, [
      sealed,
      serverAddressUrl(standby.url),
    ]);
    await eventually(
      async () =>
        (await client.put(`${path}/${currency.Id}`, { Code: 'EUR', Name: 'x' })).status === 503,
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
});
