import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { databaseUrl, serverAddressUrl } from '../../src/control/server-urls.ts';
import { createRunner } from '../../src/embedded/binaries.ts';
import { findServer } from '../../src/embedded/pid-file.ts';
import { type EmbeddedPostgres, launchServer, startEmbeddedPostgres, stopServer } from '../../src/embedded/postgres.ts';
import { addServer } from '../../src/operator/tenants/servers.ts';
import { withConnection } from '../../src/postgres/connection.ts';
import { eventually } from '../support/eventually.ts';
import { controlSql, createWorld, type World } from '../support/world.ts';

const path = '/api/v1/Currency';

describe('drill: reads that reach a standby', () => {
  let world: World;
  let folder: string;
  let primary: EmbeddedPostgres;
  let standbyData: string;
  let standbyUrl: string;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'backoffice-standby-'));
    [world, primary] = await Promise.all([createWorld(), startEmbeddedPostgres(join(folder, 'primary'))]);
    await addServer(world.installation, 'second', primary.url, 100);
  });
  after(async () => {
    await world.close();
    await stopServer(standbyData);
    await primary.leave();
    await rm(folder, { recursive: true, force: true });
  });

  /** Copies the data folder of the primary, as `pg_basebackup` would, and starts a standby on it. @returns its URL */
  async function startStandby(): Promise<string> {
    standbyData = join(folder, 'standby', 'postgres');
    await withConnection(primary.url, async client => {
      await client.query(`select pg_backup_start('standby', true)`);
      await cp(join(folder, 'primary', 'postgres'), standbyData, { recursive: true });
      const { rows } = await client.query<{ label: string }>('select labelfile as label from pg_backup_stop()');
      await writeFile(join(standbyData, 'backup_label'), rows[0]?.label ?? '');
    });
    await rm(join(standbyData, 'postmaster.pid'), { force: true });
    await writeFile(join(standbyData, 'standby.signal'), '');
    const { hostname, port, password } = new URL(primary.url);
    const source = `primary_conninfo=host=${hostname} port=${port} user=postgres password=${password}`;
    await launchServer(standbyData, join(folder, 'standby'), await createRunner(standbyData), [source]);
    return eventually(async () => {
      const url = Object.assign(new URL(primary.url), { port: (await findServer(standbyData))?.port }).href;
      const recovering = 'select from pg_stat_wal_receiver where pg_is_in_recovery()';
      return withConnection(url, async client => (await client.query(recovering)).rowCount === 1 && url);
    }, 20_000);
  }

  it('a response that was read from a standby is not cached', async () => {
    const tenant = await world.provision('far', 'second');
    const { database } = tenant;
    const client = await world.login(tenant);
    const { body: currency } = await client.post(path, { Code: 'EUR', Name: 'Euro' });
    const name = async () => (await client.get(`${path}/${currency.Id}`)).body.Name;
    expect(await name()).to.equal('Euro');

    standbyUrl = await startStandby();
    const sealed = world.installation.secrets.seal(standbyUrl, 'server_url:second');
    await controlSql(world, `update servers set admin_url = ?, address = ? where name = 'second'`, [
      sealed,
      serverAddressUrl(standbyUrl),
    ]);
    await eventually(
      async () => (await client.put(`${path}/${currency.Id}`, { Code: 'EUR', Name: 'x' })).status === 503,
    );
    for (let i = 0; i < 3; i++) expect(await name()).to.equal('Euro');

    await withConnection(databaseUrl(primary.url, database), admin =>
      admin.query(`update currencies set name = 'Changed'`),
    );
    await eventually(async () => {
      const { rows } = await withConnection(databaseUrl(standbyUrl, database), standby =>
        standby.query<{ name: string }>('select name from currencies'),
      );
      return rows[0]?.name === 'Changed';
    });
    expect(await name()).to.equal('Changed');
  });
});
