import { expect } from 'chai';
import pg from 'pg';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import type { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { cursorOfNow } from '../../support/settle.ts';
import { useEach } from '../../support/use.ts';
import { createWorld, sql, type TestTenant, type World } from '../../support/world.ts';
import { tenantRecord } from '../../tenancy/records.ts';
import { type Receiver, startReceiver } from '../webhooks/receiver.ts';

const path = '/api/v1/OrderStatuses';
/** The ids by which the counter of the former cluster is ahead. */
const ahead = 3_000;

/** Each way in which the data of a database can come to a cluster from another one. */
const arrivals = {
  /** What a dump and its restore bring: the identity of the former cluster. */
  'by a dump': 'update tenant_identity set system_identifier = system_identifier + 1',
  /** What a copy of the tables brings into a database that somebody has made by hand. */
  'without a cluster': 'update tenant_identity set system_identifier = null',
  /** The login may not read the cluster: the rows alone decide. */
  'where the login may not read the cluster':
    'revoke execute on function pg_control_system() from public',
} as const;

describe('the feed of changes in a cluster whose counter is behind the ids of the data', () => {
  for (const [arrival, identity] of Object.entries(arrivals)) {
    describe(arrival, () => {
      let world: World;
      let receiver: Receiver;
      let admin: Client;
      let globex: Client;
      let quiet: string;
      let former: string;
      let ids: number[];
      let hook: number;

      before(async () => {
        receiver = await startReceiver();
        world = await createWorld({ WEBHOOK_TRUSTED_RECEIVERS: receiver.trusted });
        admin = await world.login(world.acme);
        globex = await world.login(world.globex);
        const webhook = { Url: receiver.url('/hook'), Resources: ['OrderStatus'] };
        hook = (await admin.post('/api/v1/Webhooks', webhook)).body.Id;
        quiet = await cursorOfNow(globex, world.globex);
        ids = [];
        for (let count = 0; count < 5; count++) {
          const { body } = await admin.post(path, { Name: `Status ${count}` });
          ids.push(body.Id);
        }
        await eventually(() => received().length === 5);
        former = await cursorOfNow(admin, world.acme);

        await world.service.stop();
        await comeFromElsewhere(world.acme, identity);
        former = laterCursor(former);
        const { url } = await world.startAnotherServer();
        [admin, globex] = [admin.at(url), globex.at(url)];
      });
      after(async () => {
        await world.close();
        await receiver.close();
      });

      const received = () => receiver.at('/hook').map(({ body }) => body.data.Key);
      const types = () => receiver.at('/hook').map(({ body }) => body.type);

      it('a cursor of the former cluster gets 410, and stays expired', async () => {
        const { status, body } = await firstRead(admin, `/api/v1/Changes?after=${former}`);

        expect(status).to.equal(410);
        expect(body.code).to.equal('cursor_expired');
      });

      it('a copy and a webhook lack no change and get no earlier one again, whatever ids the counter has reached; the webhook gets one gap', async () => {
        const cursor = await cursorOfNow(admin, world.acme);
        const { body: created } = await admin.post(path, { Name: 'Later' });
        await admin.put(`${path}/${ids[0]}`, { Name: 'Renamed' });
        expect((await admin.delete(`${path}/${ids[1]}`)).status).to.equal(204);
        await useIds(world.acme, ahead + 500);
        await admin.put(`${path}/${ids[2]}`, { Name: 'Renamed, too' });

        const changes = await eventually(async () => {
          const { body } = await admin.get(`/api/v1/Changes?after=${cursor}`);
          return body.length >= 4 && body;
        });

        expect(
          changes.map(({ Action, Key }: Record<string, string>) => [Action, Key]),
        ).to.deep.equal([
          ['create', String(created.Id)],
          ['update', String(ids[0])],
          ['delete', String(ids[1])],
          ['update', String(ids[2])],
        ]);
        expect((await admin.get(`/api/v1/Changes?after=${former}`)).status).to.equal(410);

        await eventually(() => received().includes(String(ids[2])) && types().length >= 10);

        expect(types()).to.deep.equal([
          ...Array.from({ length: 5 }, () => 'order_status.created'),
          'webhook.gap',
          'order_status.created',
          'order_status.updated',
          'order_status.deleted',
          'order_status.updated',
        ]);
        expect((await admin.get(`/api/v1/Webhooks/${hook}`)).body.IsEnabled).to.equal(true);
      });

      it('the feed of another tenant goes on', async () => {
        expect((await globex.get(`/api/v1/Changes?after=${quiet}`)).status).to.equal(200);
      });
    });
  }
});

describe('a database that comes to another cluster', () => {
  const world = useEach(() => createWorld());
  let admin: Client;
  let globex: Client;

  beforeEach(async () => {
    admin = await world.login(world.acme);
    globex = await world.login(world.globex);
    await create(admin, 'first');
  });

  const create = async (client: Client, Name: string) =>
    expect((await client.post(path, { Name })).status).to.equal(201);
  const namesAfter = async (client: Client, cursor: string) => {
    const { status, body } = await client.get(`/api/v1/Changes?after=${cursor}&include=record`);
    expect(status, JSON.stringify(body)).to.equal(200);
    return body.map(({ Record }: { Record: { Name: string } }) => Record.Name);
  };
  const identity = async (tenant: TestTenant) =>
    (
      await sql<{ era: string; isOwn: boolean }>(
        tenant,
        `select feed_era as era, system_identifier is not distinct from system_identifier() as "isOwn"
           from tenant_identity`,
      )
    )[0];
  const leave = (tenant: TestTenant) => sql(tenant, arrivals['by a dump']);

  it('cursors go on when the counter goes on, as after pg_upgrade, and the cluster is stored', async () => {
    const [cursor, other] = [
      await cursorOfNow(admin, world.acme),
      await cursorOfNow(globex, world.globex),
    ];
    await create(admin, 'before');
    await leave(world.acme);
    const former = await identity(world.acme);
    expect(former?.isOwn).to.equal(false);

    const { url } = await world.startAnotherServer();
    await create(admin.at(url), 'after');

    await eventually(async () => (await namesAfter(admin.at(url), cursor)).length === 2);
    expect(await namesAfter(admin.at(url), cursor)).to.deep.equal(['before', 'after']);
    expect(await namesAfter(globex.at(url), other)).to.deep.equal([]);
    expect(await identity(world.acme)).to.deep.equal({ era: former?.era, isOwn: true });
  });

  it('cursors go on when only ids of earlier eras are ahead of the counter, as after a move from a busier server', async () => {
    const cursor = await cursorOfNow(admin, world.acme);
    await comeFromElsewhere(world.acme, 'update tenant_identity set feed_era = feed_era + 1');
    await leave(world.acme);
    const former = await identity(world.acme);

    const { url } = await world.startAnotherServer();
    await create(admin.at(url), 'after the move');

    const { status } = await admin.at(url).get(`/api/v1/Changes?after=${laterCursor(cursor)}`);
    expect(status).to.equal(200);
    expect(await identity(world.acme)).to.deep.equal({ era: former?.era, isOwn: true });
  });

  it('the position of a webhook, and the last removed change, begin a new era as an entry does', async () => {
    await admin.post('/api/v1/Webhooks', { Url: 'https://hooks.example.com/' });
    const later = (position: string) => laterCursor(position, 1_000_000);
    const [webhook] = await sql<{ position: string }>(world.acme, 'select position from webhooks');
    const changes = {
      position: `update webhooks set position = '${later(webhook?.position ?? '')}'`,
      'removed change': `update tenant_identity set removed_era = feed_era, removed_xid = '1000000000'`,
    };

    for (const [name, change] of Object.entries(changes)) {
      const former = await identity(world.acme);
      await sql(world.acme, change);
      await leave(world.acme);

      const { url } = await world.startAnotherServer();
      expect((await firstRead(admin.at(url), path)).status, name).to.equal(200);
      const present = await identity(world.acme);
      expect(Number(present?.era), name).to.be.above(Number(former?.era));
      expect(present?.isOwn, name).to.equal(true);
    }
  });

  it('a new era is above one that is ahead of the time', async () => {
    const era = Date.now() + 86_400_000;
    await sql(
      world.acme,
      `insert into audit_log (action, resource, record_key, after, database_user, feed_era)
       values ('create', 'OrderStatus', '0', '{}', 'test', ${era})`,
    );
    await leave(world.acme);

    const { url } = await world.startAnotherServer();
    expect((await firstRead(admin.at(url), path)).status).to.equal(200);

    expect(await identity(world.acme)).to.deep.equal({ era: String(era + 1), isOwn: true });
  });

  it('a transaction of the login that has begun in the former era is ended, so that it writes no change there', async () => {
    const { databaseUrl } = await tenantRecord(world, world.acme);
    const session = new pg.Client(databaseUrl);
    session.on('error', () => {});
    await session.connect();
    await session.query('begin isolation level repeatable read; select from order_statuses');
    await create(admin, 'of the former era');
    await comeFromElsewhere(world.acme, arrivals['by a dump'], 1_000_000);

    const { url } = await world.startAnotherServer();
    const statuses = await Promise.all(
      Array.from({ length: 20 }, async () => (await firstRead(admin.at(url), path)).status),
    );

    expect(new Set(statuses)).to.deep.equal(new Set([200]));
    const error = await session.query('select 1').catch(failure => failure);
    expect(error).to.be.an.instanceOf(Error);
  });

  it('a change that waits while an operator begins a new era is in the new one', async () => {
    const { databaseUrl } = await tenantRecord(world, world.acme);
    const login = new pg.Client(databaseUrl);
    const operator = new pg.Client(world.acme.adminUrl);
    await Promise.all([login.connect(), operator.connect()]);

    try {
      await login.query(`set app.actor = '{}'`);
      await create(admin, 'before the new era');
      const former = await identity(world.acme);
      await comeFromElsewhere(world.acme, 'select', 1_000_000);
      await operator.query('begin');
      await operator.query('select enter_cluster($1)', [new URL(databaseUrl).username]);
      const inserted = login.query<{ era: string }>(`${insertActivity} returning feed_era as era`);
      await untilWaiting(world.acme);
      await operator.query('commit');

      const present = await identity(world.acme);
      expect(Number(present?.era)).to.be.above(Number(former?.era));
      expect((await inserted).rows[0]?.era).to.equal(present?.era);
    } finally {
      await Promise.all([login.end(), operator.end()]);
    }
  });

  it('a process that has waited for one that began an era begins no other one, whatever was written meanwhile', async () => {
    const [first, second] = [0, 1].map(() => new pg.Client(world.acme.adminUrl));
    if (!first || !second) throw new Error('two sessions are needed');
    await Promise.all([first.connect(), second.connect()]);

    try {
      await create(admin, 'before the new era');
      await comeFromElsewhere(world.acme, arrivals['by a dump'], 1_000_000);
      await first.query('begin; select feed_era()');
      const compared = second.query<{ isNew: boolean }>('select record_cluster() as "isNew"');
      await untilWaiting(world.acme);
      await first.query(`set local session_replication_role = replica;
        update tenant_identity set feed_era = next_feed_era();
        set local session_replication_role = origin;
        ${insertActivity};
        commit`);

      expect((await compared).rows).to.deep.equal([{ isNew: false }]);
      expect((await identity(world.acme))?.isOwn).to.equal(true);
    } finally {
      await Promise.all([first.end(), second.end()]);
    }
  });

  for (const arrival of ['by a dump', 'where the login may not read the cluster'] as const) {
    it(`a server begins to serve during a backup, ${arrival}`, async () => {
      const [cursor, backup] = [
        await cursorOfNow(admin, world.acme),
        new pg.Client(world.acme.adminUrl),
      ];
      await backup.connect();

      try {
        await backup.query(arrivals[arrival]);
        await backup.query('begin; lock table tenant_identity in access share mode');
        const { url } = await world.startAnotherServer();

        await create(admin.at(url), 'during a backup');
        await eventually(async () => (await namesAfter(admin.at(url), cursor)).length > 0);
        expect(await namesAfter(admin.at(url), cursor)).to.deep.equal(['during a backup']);
      } finally {
        await backup.query('commit; grant execute on function pg_control_system() to public');
        await backup.end();
      }
    });
  }

  it('a login that may only read is served, and changes nothing', async () => {
    const { database } = world.acme;
    await leave(world.acme);
    await sql(world.acme, `alter database "${database}" set default_transaction_read_only = on`);
    const { url } = await world.startAnotherServer();

    try {
      expect((await admin.at(url).get(path)).status).to.equal(200);
      expect((await globex.at(url).get('/api/v1/EntityStatus')).status).to.equal(200);
      expect((await identity(world.acme))?.isOwn).to.equal(false);
    } finally {
      await sql(
        world.acme,
        `set transaction read write;
         alter database "${database}" reset default_transaction_read_only`,
      );
    }
  });

  it('a database to which an enabled subscription writes is not served, and the log names the subscription', async () => {
    await sql(
      world.acme,
      `create subscription "from elsewhere" connection 'host=127.0.0.1 port=1 dbname=none' publication p
         with (connect = false, slot_name = none)`,
    );
    const enable = (isEnabled: boolean) =>
      sql(
        world.acme,
        `update pg_subscription set subenabled = ${isEnabled} where subname = 'from elsewhere'`,
      );
    await enable(true);

    try {
      const { url } = await world.startAnotherServer();
      const refused = await admin.at(url).get(path);
      expect(refused.status).to.equal(503);
      expect(refused.body.code).to.equal('unavailable');
      expect((await globex.at(url).get('/api/v1/EntityStatus')).status).to.equal(200);
      expect(world.logs.join('')).to.include('TENANT_REPLICATED').and.to.include('from elsewhere');

      await enable(false);
      expect((await admin.at(url).get(path)).status).to.equal(200);
    } finally {
      await enable(false);
      await sql(world.acme, 'drop subscription "from elsewhere"');
    }
  });
});

/**
 * Reads for the first time in a new era. A connection that begins while another one begins the
 * era may be ended: 503.
 */
const firstRead = (client: Client, from: string) =>
  eventually(async () => {
    const response = await client.get(from);
    return response.status !== 503 && response;
  });

const insertActivity = `insert into activities (activity_code, recorded_by, recorded_from) values (1, 0, '')`;

/** Waits until one session waits for a lock of `tenant_identity`. */
const untilWaiting = (tenant: TestTenant) =>
  eventually(async () => {
    const waiting = await sql(
      tenant,
      `select from pg_locks where relation = 'tenant_identity'::regclass and not granted`,
    );
    return waiting.length === 1;
  });

/** Gives the data of a tenant the ids of a cluster whose counter is ahead. */
async function comeFromElsewhere(tenant: TestTenant, identity: string, ids = ahead): Promise<void> {
  await withConnection(tenant.adminUrl, async client => {
    await client.query('set session_replication_role = replica');
    for (const table of ['audit_log', 'activities']) {
      await client.query(
        `update ${table} set feed_xid = (feed_xid::text::bigint + ${ids})::text::xid8`,
      );
    }
    const { rows } = await client.query<{ id: number; position: string }>(
      'select id, position from webhooks',
    );
    for (const { id, position } of rows) {
      const text = 'update webhooks set position = $2 where id = $1';
      await client.query(text, [id, laterCursor(position, ids)]);
    }
    await client.query(identity);
  });
}

function laterCursor(cursor: string, ids = ahead): string {
  const parts = cursor.split('-');
  parts[2] = (Number.parseInt(parts[2] ?? '', 36) + ids).toString(36);
  return parts.join('-');
}

const useIds = (tenant: TestTenant, count: number) =>
  sql(
    tenant,
    `do $$ begin
       for id in 1..${count} loop
         perform pg_current_xact_id();
         commit;
       end loop;
     end $$`,
  );
