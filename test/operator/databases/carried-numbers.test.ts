import { mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { backupSettings } from '../../support/backup-settings.ts';
import type { Client } from '../../support/client.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { stopCommand } from '../../support/stopped-command.ts';
import { backUp, succeed } from '../../support/succeed.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { useEach } from '../../support/use.ts';
import { controlSql, createWorld, sql } from '../../support/world.ts';

describe('numbers of records after a restore', () => {
  const archives = useServerFolder('archives');
  const world = useEach(async () =>
    createWorld(await backupSettings(await mkdtemp(join(archives, 'target-')))),
  );
  let acme: Client;
  let globex: Client;
  /** The numbers that acme's entities, entity statuses and activities have had. */
  const given = {
    entities: new Set<number>(),
    statuses: new Set<number>(),
    activities: new Set<number>(),
  };

  const run = (...args: string[]) => succeed(world.environment, 'tenant', [...args, '--json']);

  const post = async (client: Client, path: string, body: object): Promise<number> => {
    const response = await client.post(`/api/v1/${path}`, body);
    expect(response.status, JSON.stringify(response.body)).to.equal(201);
    return response.body.Id;
  };
  /** Adds a record of each kind, and expects that each gets a number that none has had. */
  const addNew = async (name: string): Promise<number> => {
    const entity = await post(acme, 'Entities', { Name: name, EntityType: 'customer' });
    const status = await post(acme, 'EntityStatus', { Title: name });
    const activity = await post(acme, 'Activity', { ActivityCode: 1, EntityId: entity });

    expect(given.entities.has(entity), `entity ${entity}`).to.equal(false);
    expect(given.statuses.has(status), `status ${status}`).to.equal(false);
    expect(given.activities.has(activity), `activity ${activity}`).to.equal(false);

    given.entities.add(entity);
    given.statuses.add(status);
    given.activities.add(activity);
    return entity;
  };
  const ofAcme = async (): Promise<string> => {
    const rows = await controlSql<{ name: string }>(
      world,
      `select database_name as name from tenants where slug = 'acme'`,
    );
    return rows[0]?.name ?? '';
  };
  const loseDatabase = async (): Promise<void> => {
    const database = await ofAcme();
    await withConnection(postgresUrl(), client =>
      client.query(`drop database "${database}" with (force)`),
    );
  };

  beforeEach(async () => {
    acme = await world.login(world.acme);
    globex = await world.login(world.globex);
    for (const numbers of Object.values(given)) numbers.clear();
    await backUp(world.environment);
  });

  it('after a swap, a new entity is not that of a user, who reads nothing of it and of its activities', async () => {
    const one = await addNew('Reseller One');
    const member = await world.loginAs(world.acme, {
      permissions: ['full.read', 'full.manage'],
      scope: 'Self',
      entityId: one,
    });
    expect((await member.get(`/api/v1/Entities/${one}`)).status).to.equal(200);
    const untouched = await post(globex, 'Entities', { Name: 'Other', EntityType: 'customer' });
    await run('restore', 'acme', '--archive', 'latest');
    const plan = JSON.parse(await run('restore', 'swap', 'acme', '--dry-run'));

    await run('restore', 'swap', 'acme', '--yes');

    const [user] = await controlSql<{ email: string }>(
      world,
      `select email from users where scope = 'Self' and entity_id = ?`,
      [one],
    );
    expect(plan.withoutEntity).to.deep.equal([user?.email]);
    const two = await addNew('Competitor Two');
    expect((await member.get(`/api/v1/Entities/${two}`)).status).to.equal(404);
    expect((await member.get(`/api/v1/Entities/${one}`)).status).to.equal(404);
    expect((await member.get('/api/v1/Activity')).body).to.deep.equal([]);
    const next = await post(globex, 'Entities', { Name: 'Next', EntityType: 'customer' });
    expect(next).to.equal(untouched + 1);
  });

  it('after the way back from a swap, no record gets a number that the other database has given', async () => {
    await addNew('In the data before');
    await run('restore', 'acme', '--archive', 'latest');
    await run('restore', 'swap', 'acme', '--yes');
    await addNew('In the restored data');

    await run('restore', 'back', 'acme', '--yes');

    await addNew('In the former data');
  });

  it('a clone of earlier data gives no number that its source has given', async () => {
    await addNew('Before the clone');
    const { database } = JSON.parse(await run('clone', 'acme', 'acme-old', '--archive', 'latest'));

    const rows = await sql<{ id: string }>(
      { adminUrl: databaseUrl(postgresUrl(), database) },
      `insert into entities (name, entity_type) values ('Of the clone', 'customer') returning id`,
    );

    expect(given.entities.has(Number(rows[0]?.id))).to.equal(false);
  });

  it('after a restore of a lost database, no record gets a number that one may have got since the archive', async () => {
    const entityId = await addNew('Of a user');
    await world.loginAs(world.acme, { scope: 'Self', entityId });
    for (const name of ['First', 'Second', 'Third']) await addNew(name);
    await loseDatabase();
    const plan = JSON.parse(await run('restore', 'acme', '--lost', '--dry-run'));
    const all = await run('restore', '--lost', '--all', '--dry-run');

    await run('restore', 'acme', '--lost');

    expect(plan.withoutEntity).to.have.length(1);
    expect(JSON.parse(all).withoutEntity).to.deep.equal(plan.withoutEntity);
    await addNew('After the loss');
  });

  it('a number that a request chose moves no sequence', async () => {
    const last = await addNew('The last one');
    const chosen = Number.MAX_SAFE_INTEGER;
    await post(acme, 'Activity', { ActivityCode: 1, EntityId: chosen });
    await backUp(world.environment);
    await loseDatabase();

    await run('restore', 'acme', '--lost');

    const next = await addNew('After a chosen number');
    expect(next).to.be.within(last + 1_000_001, last + 1_000_010);
  });

  it('a restore of a lost database goes on after the numbers that were recorded last, also from an older archive', async () => {
    await addNew('After the older archive');
    await backUp(world.environment);
    const archives = JSON.parse(await run('backup', 'list', 'acme'));
    expect(archives).to.have.length(2);
    await controlSql(
      world,
      `update tenant_databases set numbers = numbers || '{"entities.id": "500000000"}'
        where state = 'current' and database_name = ?`,
      [await ofAcme()],
    );
    await loseDatabase();

    await run('restore', 'acme', '--lost', '--archive', archives.at(-1).name);

    expect(await addNew('After those recorded')).to.be.within(501_000_001, 501_000_010);
  });

  it('a restore of a lost database goes on after the entities of users', async () => {
    await world.loginAs(world.acme, { scope: 'Self', entityId: await addNew('Of a user') });
    await controlSql(world, 'update users set entity_id = 700000000 where entity_id is not null');
    await loseDatabase();

    await run('restore', 'acme', '--lost');

    expect(await addNew('After those of users')).to.be.within(701_000_001, 701_000_010);
  });

  it('sequences that were renamed, in either database, give no number again', async () => {
    const rename = async (from: string, to: string): Promise<void> => {
      const adminUrl = databaseUrl(postgresUrl(), await ofAcme());
      await sql({ adminUrl }, `alter sequence ${from} rename to ${to}`);
    };
    const restore = async (): Promise<void> => {
      const { database } = JSON.parse(await run('restore', 'acme', '--archive', 'latest'));
      await run('restore', 'swap', 'acme', '--database', database, '--yes');
    };

    await backUp(world.environment);
    await rename('entities_id_seq', 'renamed');
    await rename('activities_id_seq', 'entities_id_seq');
    for (const name of ['One renamed', 'Two renamed']) await addNew(name);
    await restore();
    await addNew('In place of a renamed one');

    await rename('entities_id_seq', 'renamed');
    await backUp(world.environment);
    await addNew('After the archive of a renamed one');
    await restore();
    await addNew('From an archive of a renamed one');
  });

  it('numbers that others have taken from sequences of their own, in either direction, do not go back', async () => {
    const inAcme = async (text: string) =>
      sql<{ text: string }>({ adminUrl: databaseUrl(postgresUrl(), await ofAcme()) }, text);
    const draw = `select concat_ws(' ', nextval('public."Down''s"'), nextval('public.tiny'), nextval('public.unused')) as text`;
    await inAcme(
      `create sequence public."Down's" increment -2 minvalue -1000 maxvalue -1 start -1;
       create sequence public.tiny as smallint; create sequence public.unused start 7 minvalue 7`,
    );
    await inAcme(`select nextval('public."Down''s"'), nextval('public.tiny')`);
    const { database } = JSON.parse(await run('restore', 'acme', '--archive', 'latest'));

    await run('restore', 'swap', 'acme', '--database', database, '--yes');
    await run('restore', 'back', 'acme', '--yes');

    expect(await inAcme(draw)).to.deep.equal([{ text: '-3 2 7' }]);
  });

  it('records that are made during a swap, a killed one, the next one and the way back get different numbers', async () => {
    await addNew('Before all');
    const numbers: number[] = [];
    let isOver = false;
    const write = async (): Promise<void> => {
      while (!isOver) {
        numbers.push(await post(acme, 'Entities', { Name: 'Written', EntityType: 'customer' }));
      }
    };
    const { database } = JSON.parse(await run('restore', 'acme', '--archive', 'latest'));
    const swap = ['restore', 'swap', 'acme', '--database', database, '--yes'];
    const writers = [write(), write(), write()];

    const stopped = await stopCommand(world, swap);
    await stopped.kill();
    await run('restore', 'swap', 'acme', '--database', database, '--yes');
    await run('restore', 'back', 'acme', '--yes');
    isOver = true;
    await Promise.all(writers);

    expect(new Set(numbers).size).to.equal(numbers.length);
    for (const number of numbers) expect(given.entities.has(number)).to.equal(false);
  });
});
