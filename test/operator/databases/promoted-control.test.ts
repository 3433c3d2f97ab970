import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import type { Client } from '../../support/client.ts';
import { startScript } from '../../support/command-line.ts';
import { killedRestore } from '../../support/paused-run.ts';
import { TwoServers } from '../../support/two-servers.ts';
import { useEach } from '../../support/use.ts';
import { controlSql } from '../../support/world.ts';

describe('a control database that has lost its last commits', () => {
  const servers = useEach(() => TwoServers.start({}));

  /**
   * Takes the exchange of the last move back, as in a standby that was promoted before it had
   * received that commit.
   * @param reserved the row of the new database, as it was before the exchange
   */
  const loseExchange = async (reserved: string): Promise<void> => {
    const ofAcme = `tenant_id = (select id from tenants where slug = 'acme')`;
    await controlSql(
      servers.world,
      `update tenant_databases set ${reserved}, current_since = null, schema_version = null,
              compatible_from = null, schema_fingerprint = null
        where ${ofAcme} and state = 'current'`,
    );
    await controlSql(
      servers.world,
      `update tenant_databases set state = 'current', kept_by = null, keep_until = null, current_since = now()
        where id = (select id from tenant_databases
                     where ${ofAcme} and state = 'kept' order by upper(current_during) desc limit 1)`,
    );
    await controlSql(
      servers.world,
      `update tenants t set server_id = d.server_id, database_name = d.database_name, role_name = d.role_name,
              role_password = d.role_password, updated_at = now()
         from tenant_databases d
        where d.tenant_id = t.id and d.state = 'current' and t.slug = 'acme'`,
    );
  };

  for (const [name, reserved, hasFence] of [
    ['reserved', `state = 'reserved'`, false],
    ['reserved, with the fence', `state = 'reserved'`, true],
    ['to be dropped', `state = 'condemned'`, false],
  ] as const) {
    it(`while the newer database of a tenant is ${name}, no command serves the former one or drops the newer one, and a swap puts the newer one in place`, async () => {
      const { world } = servers;
      const admin = await world.login(world.acme);
      const from = await servers.serverOf();
      const to = await servers.otherServer();
      const { newDatabase } = await servers.move('acme', '--to', to);
      const written = await admin.post('/api/v1/EntityStatus', { Title: `after, ${name}` });
      expect(written.status).to.equal(201);

      await loseExchange(reserved);
      if (hasFence) {
        await controlSql(
          world,
          `insert into tenant_fences (tenant_guid, id, closed) values ('${world.acme.guid}', gen_random_uuid(), true)`,
        );
      }

      expect(await servers.serverOf()).to.equal(from);
      if (hasFence) {
        const plan = await servers.runWell(['databases', 'prune', '--dry-run']);
        expect(plan).to.match(/^acme .* refuse *$/m);
        expect(plan).to.include(`bin/backoffice restore swap acme --database ${newDatabase}`);
      }
      for (const command of [
        ['databases', 'prune', 'acme', '--dry-run'],
        ['databases', 'prune', 'acme'],
        ['move', 'acme', '--to', to],
        ['databases', 'prune', 'acme'],
      ]) {
        const { code, stderr } = await servers.run(command);
        expect(code, `${command.join(' ')}: ${stderr}`).to.equal(1);
        expect(stderr).to.include(`bin/backoffice restore swap acme --database ${newDatabase}`);
        // Behind a fence, a request would wait for its end first.
        if (!hasFence) expect((await admin.get('/api/v1/EntityStatus')).status).to.equal(503);
      }

      await servers.runWell(['restore', 'swap', 'acme', '--database', newDatabase, '--yes']);

      expect(await servers.serverOf()).to.equal(to);
      const { status, body } = await admin.get(`/api/v1/EntityStatus/${written.body.Id}`);
      expect([status, body.Title]).to.deep.equal([200, `after, ${name}`]);
      const again = await admin.post('/api/v1/EntityStatus', { Title: `again, ${name}` });
      expect(again.status).to.equal(201);
      const globex = await world.login(world.globex);
      expect((await globex.get('/api/v1/EntityStatus')).status).to.equal(200);
    });
  }

  /** Moves acme, writes a record, and takes the exchange back. */
  const moveAndLose = async (
    admin: Client,
    title: string,
  ): Promise<{ former: string; newer: string; id: number }> => {
    const to = await servers.otherServer();
    const { oldDatabase, newDatabase } = await servers.move('acme', '--to', to);
    const written = await admin.post('/api/v1/EntityStatus', { Title: title });
    expect(written.status).to.equal(201);

    await loseExchange(`state = 'reserved'`);

    return { former: oldDatabase, newer: newDatabase, id: written.body.Id };
  };

  const closeFence = (): Promise<unknown> =>
    controlSql(
      servers.world,
      `insert into tenant_fences (tenant_guid, id, closed)
       values ('${servers.world.acme.guid}', gen_random_uuid(), true)`,
    );

  const swapIn = (database: string): Promise<string> =>
    servers.runWell(['restore', 'swap', 'acme', '--database', database, '--yes']);

  const expectRefused = async (command: string[], newer: string): Promise<void> => {
    const { code, stderr } = await servers.run(command);
    expect(code, `${command.join(' ')}: ${stderr}`).to.equal(1);
    expect(stderr).to.include(`bin/backoffice restore swap acme --database ${newer}`);
  };

  it('a newer database that the control database does not know is put in place, and no database serves the tenant before', async () => {
    const { world } = servers;
    const admin = await world.login(world.acme);
    const { newer, id } = await moveAndLose(admin, 'unknown');
    await controlSql(world, `delete from tenant_databases where database_name = '${newer}'`);

    await expectRefused(['databases', 'prune', 'acme', '--dry-run'], newer);
    await expectRefused(['databases', 'prune', 'acme'], newer);
    await expectRefused(['move', 'acme', '--to', await servers.otherServer()], newer);
    expect((await admin.get('/api/v1/EntityStatus')).status).to.equal(503);
    await swapIn(newer);

    expect((await admin.get(`/api/v1/EntityStatus/${id}`)).body.Title).to.equal('unknown');
    expect((await admin.post('/api/v1/EntityStatus', { Title: 'known' })).status).to.equal(201);
  });

  it('no command copies or changes a former database as if the tenant had it', async () => {
    const { world } = servers;
    const { newer } = await moveAndLose(await world.login(world.acme), 'not copied');

    for (const command of [
      ['clone', 'acme', 'copied'],
      ['packs', 'apply', 'acme', '--packs', 'currencies'],
      ['webhooks', 'disable', 'acme', '1', '--yes'],
    ]) {
      const { code, stderr } = await servers.run(command);
      expect(code, `${command.join(' ')}: ${stderr}`).to.equal(1);
      expect(stderr).to.include('The database of acme is closed');
    }
    await swapIn(newer);
  });

  it('a newer database whose server is away is not given up for the former one', async () => {
    const { world, second } = servers;
    const admin = await world.login(world.acme);
    const { newer, id } = await moveAndLose(admin, 'away');
    await second.crash();

    try {
      await expectRefused(['databases', 'prune', 'acme'], newer);
      expect((await admin.get('/api/v1/EntityStatus')).status).to.equal(503);
    } finally {
      await second.restart();
    }
    await swapIn(newer);

    expect((await admin.get(`/api/v1/EntityStatus/${id}`)).body.Title).to.equal('away');
  });

  it('every write that is acknowledged while the newer database is put in place is in it', async () => {
    const { world } = servers;
    const admin = await world.login(world.acme);
    const { newer } = await moveAndLose(admin, 'before');
    await expectRefused(['databases', 'prune', 'acme'], newer);
    await closeFence();

    let isOver = false;
    const write = async (): Promise<number[]> => {
      const ids: number[] = [];
      while (!isOver) {
        const { status, body } = await admin.post('/api/v1/EntityStatus', { Title: 'meanwhile' });
        if (status === 201) ids.push(body.Id);
      }
      return ids;
    };
    const writing = write();
    await swapIn(newer).finally(() => (isOver = true));
    const written = await writing;

    const found = (await admin.get('/api/v1/EntityStatus')).body as { Id: number; Title: string }[];
    const titles = new Map(found.map(({ Id, Title }) => [Id, Title]));
    expect(written.filter(id => titles.get(id) !== 'meanwhile')).to.deep.equal([]);
  });

  for (const step of ['close current', 'exchange', 'open current']) {
    it(`a tenant never goes on in its former database after the newer one was put in place until \`${step}\``, async () => {
      const { world } = servers;
      const admin = await world.login(world.acme);
      const { newer, id } = await moveAndLose(admin, step);

      const script = startScript(
        killedRestore,
        ['swap', 'acme', step, 'SIGKILL', newer],
        world.environment,
      );
      await script.ended;
      await servers.run(['databases', 'prune', 'acme']);

      const read = await admin.get(`/api/v1/EntityStatus/${id}`);
      expect([200, 503]).to.include(read.status);
      if (read.status === 503) await swapIn(newer);

      const { body } = await admin.get(`/api/v1/EntityStatus/${id}`);
      expect(body.Title).to.equal(step);
    });
  }

  /** Adds an entity to acme over HTTP, and returns its number. */
  const addEntity = async (admin: Client, Name: string): Promise<number> =>
    (await admin.post('/api/v1/Entities', { Name, EntityType: 'customer' })).body.Id;
  const inDatabase = async (database: string, text: string): Promise<void> => {
    const isOnSecond = (await servers.serverOf()) === 'second';
    const own = servers.world.environment.DATABASE_URL ?? '';
    const url = databaseUrl(isOnSecond ? servers.second.url : own, database);
    await withConnection(url, client => client.query(text));
  };

  it('a newer database that is put in place gives no number that the former one has given', async () => {
    const admin = await servers.world.login(servers.world.acme);
    const { former, newer } = await moveAndLose(admin, 'ahead');
    await inDatabase(former, `select setval('entities_id_seq', 5000)`);

    await swapIn(newer);

    expect(await addEntity(admin, 'After 5000')).to.equal(5_001);
  });

  it('a former database that an operator serves again gives no number that the newer one has given', async () => {
    const { world } = servers;
    const admin = await world.login(world.acme);
    const to = await servers.otherServer();
    const { oldDatabase } = await servers.move('acme', '--to', to);
    const given = await addEntity(admin, 'In the newer one');
    await loseExchange(`state = 'reserved'`);

    await swapIn(oldDatabase);

    expect(await addEntity(admin, 'In the former one')).to.equal(given + 1);
  });

  it('a former database that is served again because the newer one is gone skips the numbers that the newer one may have given', async () => {
    const { world } = servers;
    const admin = await world.login(world.acme);
    const to = await servers.otherServer();
    const { oldDatabase, newDatabase } = await servers.move('acme', '--to', to);
    const given = await addEntity(admin, 'In the newer one');
    await inDatabase('postgres', `drop database "${newDatabase}" with (force)`);
    await loseExchange(`state = 'reserved'`);

    await swapIn(oldDatabase);

    expect(await addEntity(admin, 'In the former one')).to.be.above(given + 900_000);
  });

  it('a restore of a lost database leaves the tenant to the newer one', async () => {
    const { world } = servers;
    const admin = await world.login(world.acme);
    const { former, newer, id } = await moveAndLose(admin, 'lost');
    const isOnSecond = (await servers.serverOf()) === 'second';
    const url = isOnSecond
      ? servers.second.url
      : databaseUrl(world.environment.DATABASE_URL ?? '', 'postgres');
    await withConnection(url, client => client.query(`drop database ${former} with (force)`));

    await expectRefused(['databases', 'prune', 'acme'], newer);
    await expectRefused(['restore', 'acme', '--lost'], newer);
    await swapIn(newer);

    expect((await admin.get(`/api/v1/EntityStatus/${id}`)).body.Title).to.equal('lost');
    expect(await addEntity(admin, 'After a skip')).to.be.above(1_000_000);
  });
});
