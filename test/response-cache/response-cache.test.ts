import { get } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import fc from 'fast-check';
import type { ReadResult } from '../../src/connections/tenant-driver.ts';
import { createAnnouncer } from '../../src/control/announcer.ts';
import { ChangeFeed } from '../../src/control/change-feed.ts';
import type { TenantRecord } from '../../src/control/records.ts';
import { withConnection } from '../../src/postgres/connection.ts';
import type { RowValues } from '../../src/postgres/table-statements.ts';
import { resources } from '../../src/resources/index.ts';
import { ResponseCache } from '../../src/response-cache/response-cache.ts';
import type { ApiResponse, Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { postgresUrl } from '../support/test-server.ts';
import { createWorld, sql, type TestTenant, type World } from '../support/world.ts';
import { tenantRecord } from '../tenancy/records.ts';

const currencies = '/api/v1/Currency';
const feedMs = 1_000; // what is promised of another process
const readThrough = { 'Cache-Control': 'no-cache' };

describe('Kept answers', () => {
  let world: World;
  let controlName: string;
  /** Two processes of the service. */
  let urls: [string, string];
  let managementPorts: number[];
  let acme: [Client, Client];
  let globex: [Client, Client];
  /** A currency of acme; globex has one of the same id. */
  let one: string;

  before(async () => {
    world = await createWorld();
    controlName = decodeURIComponent(new URL(world.installation.controlUrl).pathname.slice(1));
    // The other one reads on the very connection that it writes on.
    const another = await world.startAnotherServer({ TENANT_CONNECTIONS: '1' });
    urls = [world.url, another.url];
    managementPorts = [world.service.managementPort, another.service.managementPort];
    acme = both(await world.login(world.acme));
    globex = both(await world.login(world.globex));
    for (const [client] of [acme, globex]) {
      const { body } = await client.post(currencies, { Code: 'EUR', Name: 'Euro' });
      one = `${currencies}/${body.Id}`;
    }
  });
  after(() => world.close());

  const both = (client: Client): [Client, Client] => [client.at(urls[0]), client.at(urls[1])];
  const control = (text: string, values: unknown[] = []) => world.control.em.fork().execute(text, values);
  const rename = (client: Client, name: string, headers = {}) => client.put(one, { Code: 'EUR', Name: name }, headers);
  const nameAt = async (client: Client, headers = {}): Promise<string> => (await client.get(one, headers)).body.Name;

  describe('are given out', () => {
    it('without the database, once they were asked for', async () => {
      await fromMemory(async client => {
        for (const path of [one, currencies]) expect((await client.get(path)).status).to.equal(200);
      });
    });

    it('the same in every byte as what is read through, and as a 304 to who has them', async () => {
      for (const { path } of resources) {
        const list = await raw(acme[0], path);
        if (list.status === 404) continue;
        const id = (JSON.parse(list.text) as { Id?: number }[])[0]?.Id;
        for (const each of id === undefined ? [path] : [path, `${path}/${id}`]) {
          const answers = [];
          for (const headers of [{}, {}, readThrough]) answers.push(await raw(acme[0], each, headers));
          expect(new Set(answers.map(({ status, text, tag }) => `${status} ${tag} ${text}`)).size).to.equal(1);
          expect(answers[0]).to.include({ status: 200 });
          const tag = answers[0]?.tag ?? '';
          expect(tag).to.match(/^"[\w-]+"$/);
          for (const headers of [{}, readThrough]) {
            const unchanged = await raw(acme[0], each, { 'If-None-Match': tag, ...headers });
            expect([unchanged.status, unchanged.text, unchanged.tag]).to.deep.equal([304, '', tag]);
            expect((await raw(acme[0], each, { 'If-None-Match': '"another"', ...headers })).status).to.equal(200);
          }
        }
      }
    });

    it('to their own tenant only, though another one has the same path', async () => {
      await rename(acme[0], 'Euro of acme');
      await rename(globex[0], 'Euro of globex');
      await keep(acme);
      await keep(globex);
      for (const client of acme) expect(await nameAt(client)).to.equal('Euro of acme');
      for (const client of globex)
        expect(await nameAt(client.withToken(client.tokens?.accessToken ?? ''))).to.equal('Euro of globex');
      const mixed = await acme[0].get(one, { 'X-Tenant': world.globex.guid });
      expect(mixed.body.Name).to.equal('Euro of acme');
    });

    it('to nobody who may not ask', async () => {
      const client = await world.login(world.acme);
      await keep(both(client));
      await client.post('/api/v1/auth/logout', { refreshToken: client.tokens?.refreshToken });
      expect((await client.get(one)).status).to.equal(401);
      expect((await world.anonymous.get(one, { 'X-Tenant': world.acme.guid })).status).to.equal(401);
      const statuses = '/api/v1/EntityStatus';
      for (let i = 0; i < 2; i++) expect((await acme[0].get(statuses)).status).to.equal(200);
      const stranger = await world.loginAs(world.acme, { permissions: [] });
      expect((await stranger.get(statuses)).status).to.equal(403);
    });
  });

  describe('of what has changed', () => {
    it('are gone for the process that changed it, as soon as it says so', async () => {
      for (let i = 0; i < 12; i++) {
        await keep(acme);
        expect((await rename(acme[0], `own ${i}`)).status).to.equal(200);
        expect(await nameAt(acme[0])).to.equal(`own ${i}`);
        const list = await acme[0].get(currencies);
        expect(list.body.map(({ Name }: { Name: string }) => Name)).to.include(`own ${i}`);
      }
    });

    it('are gone for both, however many changes follow one another, and are kept again after the last', async () => {
      for (let i = 0; i < 30; i++) {
        const client = acme[Math.floor(i / 5) % 2] as Client;
        expect((await rename(client, `burst ${i}`)).status).to.equal(200);
        expect(await nameAt(client)).to.equal(`burst ${i}`);
      }
      await everywhere('burst 29');
      await fromMemory(async client => expect(await nameAt(client)).to.equal('burst 29'));
    });

    it('are kept again though the burst ended in a change of something else, which failed', async () => {
      const client = acme[1]; // which has one connection
      const { body } = await client.post('/api/v1/Entities', { Name: 'Customer', EntityType: 'customer' });
      const { status } = await withConnection(world.acme.adminUrl, async session => {
        await session.query(`begin; select from entities where id = ${body.Id} for update`);
        expect((await rename(client, 'before the failure')).status).to.equal(200);
        const answer = client.put(`/api/v1/Entities/${body.Id}`, { Name: 'Never', EntityType: 'customer' });
        const blocked = `from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
        await eventually(async () => (await session.query(`select ${blocked}`)).rowCount === 1);
        await session.query('select pg_sleep(0.1)'); // the burst is over
        await session.query(`select pg_cancel_backend(pid) ${blocked}; rollback`);
        return answer;
      });
      expect(status).to.be.at.least(500);
      await fromMemory(async each => expect(await nameAt(each)).to.equal('before the failure'));
    });

    it('are dropped once for a burst of changes', async () => {
      const told: string[] = [];
      await withConnection(world.installation.controlUrl, async listener => {
        listener.on('notification', ({ payload = '' }) => told.push(payload));
        await listener.query('listen control_changes');
        const changes = Array.from({ length: 60 }, (_, i) => rename(acme[1], `one of many ${i}`));
        for (const { status } of await Promise.all(changes)) expect(status).to.equal(200);
        await listener.query('select 1');
      });
      const mine = told.filter(payload => payload.startsWith(`answers:${world.acme.guid}/`));
      expect(mine.length).to.be.within(1, 59);
    });

    it('are gone for another process within the delay of the feed', async () => {
      const delays: number[] = [];
      for (let i = 0; i < 15; i++) {
        await keep(acme);
        await rename(acme[0], `other ${i}`);
        const changedAt = performance.now();
        await eventually(async () => (await nameAt(acme[1])) === `other ${i}`, feedMs);
        delays.push(performance.now() - changedAt);
      }
      if (process.env.MEASURE) process.stdout.write(`feed delay, ms: ${delays.map(ms => ms.toFixed(1)).join(' ')}\n`);
      expect(Math.max(...delays)).to.be.at.most(feedMs);
    });

    it('are gone when a record has come, and when it has gone', async () => {
      for (let i = 0; i < 5; i++) {
        const { body } = await acme[0].post(currencies, { Code: 'XTS', Name: 'Test' });
        const path = `${currencies}/${body.Id}`;
        for (const client of acme) await eventually(async () => (await client.get(path)).status === 200, feedMs);
        expect((await acme[1].delete(path)).status).to.equal(204);
        expect((await acme[1].get(path)).status).to.equal(404);
        await eventually(async () => (await acme[0].get(path)).status === 404, feedMs);
        await sql(world.acme, 'delete from currencies where id = $1', [body.Id]);
      }
    });

    it('were current within the last second, whoever writes and reads meanwhile, and agree when they have done', async () => {
      await model();
    }).timeout(60_000);

    it('by psql are read by who asks for no kept answer', async () => {
      await rename(acme[0], 'kept');
      await everywhere('kept');
      await fromMemory(async client => expect(await nameAt(client)).to.equal('kept'));
      await sql(world.acme, `update currencies set name = 'by psql' where code = 'EUR'`);
      for (const client of acme) {
        expect(await nameAt(client, readThrough)).to.equal('by psql');
        expect(await nameAt(client)).to.equal('kept');
      }
      await rename(acme[0], 'by the service');
      await everywhere('by the service');
    });
  });

  describe('while a change is being committed', () => {
    before(() =>
      sql(
        world.acme,
        `create function gate() returns trigger language plpgsql as $$ begin
           perform pg_advisory_xact_lock_shared(4711);
           if new.name = 'refused at commit' then raise exception 'refused' using errcode = '23514'; end if;
           return null;
         end $$;
         create constraint trigger gate after update on currencies deferrable initially deferred
           for each row execute function gate()`,
      ),
    );
    after(() => sql(world.acme, 'drop function gate() cascade'));

    /** Lets a change of the name get as far as its commit, after its announcement, and holds it there. */
    async function held(
      name: string,
      work: (answer: Promise<ApiResponse>) => Promise<void>,
      letPass: () => Promise<unknown> = async () => {},
    ): Promise<ApiResponse> {
      return withConnection(world.acme.adminUrl, async session => {
        await session.query('select pg_advisory_lock(4711)');
        const answer = rename(acme[0], name);
        await letPass();
        await eventually(async () => (await waiting()).length === 1);
        await work(answer);
        await session.query('select pg_advisory_unlock(4711)');
        return answer;
      });
    }

    const waiting = () =>
      sql<{ pid: number }>(
        world.acme,
        `select pid from pg_locks where locktype = 'advisory' and not granted and objid = 4711`,
      );

    it('are what was before, and not kept: after it everybody reads what is new, and that is kept', async () => {
      await everywhere(await renamed('before it'));
      await keep(acme);
      const { status } = await held('after it', async () => {
        // Announced, so nobody has the old answer in memory; and nobody takes it up again.
        for (let i = 0; i < 5; i++) for (const client of acme) expect(await nameAt(client)).to.equal('before it');
        expect(await nameAt(acme[1], readThrough)).to.equal('before it');
      });
      expect(status).to.equal(200);
      for (const client of acme) expect(await nameAt(client)).to.equal('after it');
      await fromMemory(async client => expect(await nameAt(client)).to.equal('after it'));
    });

    it('are not kept either when the change has waited for long before it was made', async () => {
      await everywhere(await renamed('before the wait'));
      const { status } = await withConnection(world.acme.adminUrl, async session => {
        await session.query(`begin; select from currencies where code = 'EUR' for update`);
        return held(
          'after the wait',
          async () => {
            for (let i = 0; i < 5; i++)
              for (const client of acme) expect(await nameAt(client)).to.equal('before the wait');
          },
          () => session.query('select pg_sleep(0.1)').then(() => session.query('rollback')),
        );
      });
      expect(status).to.equal(200);
      for (const client of acme) expect(await nameAt(client)).to.equal('after the wait');
    });

    it('leave nothing when the writer is killed at its commit', async () => {
      await everywhere(await renamed('alive'));
      const { status } = await held('never', async answer => {
        for (const client of acme) expect(await nameAt(client)).to.equal('alive');
        for (const { pid } of await waiting()) await operator(`select pg_terminate_backend(${pid})`);
        await answer;
      });
      expect(status).to.equal(503);
      await everywhere('alive');
      await keep(acme);
      await everywhere(await renamed('and again'));
    });

    it('leave nothing when the commit fails', async () => {
      await everywhere(await renamed('accepted'));
      await keep(acme);
      expect((await rename(acme[0], 'refused at commit')).status).to.be.at.least(400);
      for (const client of acme) expect(await nameAt(client)).to.equal('accepted');
      await everywhere(await renamed('accepted again'));
    });
  });

  it('stay when a writer is killed before it has changed anything', async () => {
    await everywhere(await renamed('untouched'));
    await keep(acme);
    await withConnection(world.acme.adminUrl, async session => {
      await session.query(`begin; select from currencies where code = 'EUR' for update`);
      const answer = rename(acme[0], 'never');
      await eventually(async () => {
        const killed = await operator(
          `select pg_terminate_backend(pid) from pg_stat_activity where datname = '${world.acme.database}'
             and application_name = 'backoffice-api' and wait_event_type = 'Lock'`,
        );
        return killed.length > 0;
      });
      expect((await answer).status).to.equal(503);
      await session.query('rollback');
    });
    await everywhere('untouched');
  });

  describe('when the feed is down', () => {
    afterEach(async () => {
      await connectionsAllowed(true);
      await eventually(async () => (await readiness()).every(status => status === 200));
    });

    it('are not given out: every change shows at once; and when it is back, all is current', async () => {
      await everywhere(await renamed('up'));
      await keep(acme);
      await control('select 1'); // a connection that stays
      await connectionsAllowed(false);
      await end('backoffice-change-feed');
      await eventually(async () => (await readiness()).every(status => status === 503));
      for (let i = 0; i < 3; i++) {
        await sql(world.acme, `update currencies set name = 'down ${i}' where code = 'EUR'`);
        for (const client of acme) expect(await nameAt(client)).to.equal(`down ${i}`);
      }
      await connectionsAllowed(true);
      await eventually(async () => (await readiness()).every(status => status === 200));
      for (const client of acme) expect(await nameAt(client)).to.equal('down 2');
      await everywhere(await renamed('up again'));
    });

    it('a change that cannot be announced is not made', async () => {
      await everywhere(await renamed('announced'));
      await keep(acme);
      await connectionsAllowed(false);
      await end('backoffice-control');
      const answers = await Promise.all(['lost 1', 'lost 2'].map((name, i) => rename(acme[i % 2] as Client, name)));
      for (const { status, body } of answers) expect([status, body.code]).to.deep.equal([503, 'unavailable']);
      expect(await sql(world.acme, `select name from currencies where code = 'EUR'`)).to.deep.equal([
        { name: 'announced' },
      ]);
      await connectionsAllowed(true);
      await everywhere(await renamed('announced again'));
    });
  });

  describe('of a tenant', () => {
    let other: TestTenant;
    let clients: [Client, Client];

    beforeEach(async () => {
      other = await world.provision(`tenant-${Math.random().toString(36).slice(2, 10)}`);
      clients = both(await world.login(other));
      for (const client of clients)
        for (let i = 0; i < 2; i++) expect((await client.get('/api/v1/EntityStatus')).status).to.equal(200);
    });

    for (const [name, change, status, code] of [
      ['that was suspended', `status = 'suspended'`, 403, 'tenant_inactive'],
      ['that is at another version', `schema_version = '0000-before'`, 503, 'migration_pending'],
      ['whose address has changed', `database_name = 'no_such_database'`, 503, 'unavailable'],
    ] as const) {
      it(`${name} are not given out after a second`, async () => {
        await control(`update tenants set ${change} where id = ?`, [other.id]);
        await Promise.all(
          clients.map(client =>
            eventually(async () => {
              const { status: told, body } = await client.get('/api/v1/EntityStatus');
              return told === status && body.code === code;
            }, feedMs),
          ),
        );
        // For the end of the world, which drops what it finds.
        await control('update tenants set database_name = ? where id = ?', [other.database, other.id]);
      });
    }
  });

  describe('as a part', () => {
    let feed: ChangeFeed;
    let records: TenantRecord[];
    const key = 'list';

    before(async () => {
      records = await Promise.all([world.acme, world.globex].map(tenant => tenantRecord(world, tenant)));
      feed = new ChangeFeed(world.installation.controlUrl, world.log);
      await feed.start();
    });
    after(() => feed.stop());

    const create = (maxBytes = 1_000_000, now?: () => number) =>
      new ResponseCache({
        feed,
        announce: createAnnouncer(world.control),
        writeMonitor: world.service.writeMonitor,
        maxBytes,
        now,
      });
    const source = 'a database that nobody watches';
    const cacheable = (...rows: RowValues[]): Promise<ReadResult> => Promise.resolve({ rows, cacheable: true, source });
    const told = ({ body }: { body: Buffer | string }) => JSON.parse(body.toString());

    const load = (answers: ResponseCache, n: number, answerKey = key): Promise<unknown> =>
      answers.load(
        records[0] as TenantRecord,
        'Currency',
        answerKey,
        () => cacheable({ n }),
        rows => rows,
      );

    it('are at most a minute old when nothing more is known of their database', async () => {
      let now = 5_000;
      const answers = create(undefined, () => now);
      const [tenant] = records as [TenantRecord];
      await load(answers, 1);
      now += 44_999;
      expect(told(answers.find(tenant, 'Currency', key) as never)).to.deep.equal([{ n: 1 }]);
      now += 15_002;
      expect(answers.find(tenant, 'Currency', key)).to.equal(undefined);
      await load(answers, 2);
      expect(told(answers.find(tenant, 'Currency', key) as never)).to.deep.equal([{ n: 2 }]);
    });

    it('end one after the other, though they were read at the same time', async () => {
      let now = 5_000;
      const answers = create(undefined, () => now);
      const [tenant] = records as [TenantRecord];
      const keys = Array.from({ length: 100 }, (_, i) => `id = ? ${i}`);
      for (const each of keys) await load(answers, 1, each);
      now += 52_500;
      expect(keys.filter(each => answers.find(tenant, 'Currency', each))).to.have.length.within(10, 90);
    });

    it('are read once for all who ask meanwhile, unless a change was under way: then nobody is given what is older than they', async () => {
      const answers = create();
      const [tenant] = records as [TenantRecord];
      const reads: ((reading: ReadResult) => void)[] = [];
      const load = () =>
        answers.load(
          tenant,
          'Currency',
          key,
          () => new Promise<ReadResult>(resolve => reads.push(resolve)),
          ([row]) => row ?? fail(),
        );
      const shared = [load(), load(), load()];
      await eventually(() => reads.length > 0);
      reads[0]?.({ rows: [{ n: 1 }], cacheable: true, source });
      expect((await Promise.all(shared)).map(told)).to.deep.equal([{ n: 1 }, { n: 1 }, { n: 1 }]);
      expect(reads).to.have.length(1);

      for (const rows of [[{ n: 2 }], []]) {
        await answers.invalidate(tenant, 'Currency');
        reads.length = 0;
        const early = load().catch((error: Error) => error);
        await eventually(() => reads.length === 1);
        // The change is committed and its writer answered; these know of it.
        const late = [load(), load()];
        reads[0]?.({ rows, cacheable: false, source });
        await early;
        await eventually(() => reads.length === 2);
        reads[1]?.({ rows: [{ n: 3 }], cacheable: true, source });
        expect((await Promise.all(late)).map(told)).to.deep.equal([{ n: 3 }, { n: 3 }]);
        expect(told(answers.find(tenant, 'Currency', key) as never)).to.deep.equal({ n: 3 });
      }
    });

    it('that were read before a change and came after it are not kept', async () => {
      const answers = create();
      const [tenant] = records as [TenantRecord];
      let arrive: (reading: ReadResult) => void = () => {};
      const reading = answers.load(
        tenant,
        'Currency',
        key,
        () => new Promise(resolve => (arrive = resolve)),
        rows => rows,
      );
      await eventually(() => arrive.length === 1);
      await answers.invalidate(tenant, 'Currency');
      arrive({ rows: [{ n: 1 }], cacheable: true, source });
      await reading;
      expect(answers.find(tenant, 'Currency', key)).to.equal(undefined);
      expect(answers.bytes).to.equal(0);
    });

    it('take no more memory than they may, in all and for one tenant, and give all of it back', async () => {
      const maxBytes = 160_000;
      const operation = fc.record({
        tenant: fc.nat(39),
        resource: fc.constantFrom('Currency', 'Country', 'TaxCode'),
        key: fc.nat(30),
        size: fc.oneof(fc.nat(400), fc.nat(12_000)),
        act: fc.constantFrom('load', 'load', 'load', 'load', 'load', 'find', 'change', 'another record'),
      });
      await fc.assert(
        fc.asyncProperty(fc.array(operation, { minLength: 200, maxLength: 400 }), async operations => {
          const answers = create(maxBytes);
          const tenants = Array.from(
            { length: 40 },
            (_, i) => ({ ...records[0], guid: `tenant-${i}` }) as TenantRecord,
          );
          await Promise.all(
            operations.map(async ({ tenant, resource, key, size, act }) => {
              const record = tenants[tenant] as TenantRecord;
              if (act === 'another record') tenants[tenant] = { ...record };
              else if (act === 'find') answers.find(record, resource, String(key));
              else if (act === 'change') await answers.invalidate(record, resource);
              else
                await answers.load(
                  record,
                  resource,
                  String(key),
                  () => cacheable({ text: 'x'.repeat(size) }),
                  rows => rows,
                );
              expect(answers.bytes).to.be.within(0, maxBytes);
            }),
          );
          const used = answers.bytes;
          for (const record of tenants)
            for (const resource of ['Currency', 'Country', 'TaxCode']) await answers.invalidate(record, resource);
          expect(used).to.be.greaterThan(0);
          expect(answers.bytes).to.equal(0);
        }),
        { numRuns: 4, endOnFailure: true },
      );
    });

    it('of one tenant, however many it asks for or how large, leave the others theirs', async () => {
      const answers = create(160_000);
      const [tenant, other] = records as [TenantRecord, TenantRecord];
      await answers.load(
        other,
        'Currency',
        key,
        () => cacheable({ of: 'other' }),
        rows => rows,
      );
      const alone = answers.bytes;
      await answers.load(
        tenant,
        'Currency',
        'small',
        () => cacheable({ n: 1 }),
        rows => rows,
      );
      await answers.load(
        tenant,
        'Currency',
        'large',
        () => cacheable({ text: 'x'.repeat(50_000) }),
        rows => rows,
      );
      expect(answers.find(tenant, 'Currency', 'large')).to.equal(undefined);
      expect(told(answers.find(tenant, 'Currency', 'small') as never)).to.deep.equal([{ n: 1 }]);
      for (let i = 0; i < 5_000; i++) {
        await answers.load(
          tenant,
          'Currency',
          `id ${i}`,
          () => cacheable({ i }),
          rows => rows,
        );
        expect(answers.bytes - alone).to.be.within(0, 10_000);
      }
      expect(told(answers.find(other, 'Currency', key) as never)).to.deep.equal([{ of: 'other' }]);
    });
  });

  /** What a request wrote, and when: its value became current at one moment between the two. */
  interface Write {
    value: string;
    process: number;
    beganAt: number;
    endedAt: number;
  }

  /** One field of one record, and every value that it ever was to have. */
  interface Register {
    tenant: TestTenant;
    clients: [Client, Client];
    path: string;
    list: string;
    field: string;
    rest: object;
    table: string;
    writes: Map<string, Write>;
  }

  /**
   * Writers and readers in both processes, over three resources of two tenants. A read must be a value that nothing had
   * replaced for sure: no later write whose answer had been given before the request began (in the same process), or
   * a second before it (in the other one).
   */
  async function model(): Promise<void> {
    const registers: Register[] = [];
    for (const [tenant, clients] of [
      [world.acme, acme],
      [world.globex, globex],
    ] as const) {
      const option = await clients[0].post('/api/v1/SystemOptions', { SystemOptionTypeId: 1, Value: 'start' });
      for (const { path, list, field, rest, table } of [
        { path: one, list: currencies, field: 'Name', rest: { Code: 'EUR' }, table: 'currencies.name' },
        {
          path: '/api/v1/EntityStatus/3',
          list: '/api/v1/EntityStatus',
          field: 'Title',
          rest: {},
          table: 'entity_statuses.title',
        },
        {
          path: `/api/v1/SystemOptions/${option.body.Id}`,
          list: '/api/v1/SystemOptions',
          field: 'Value',
          rest: { SystemOptionTypeId: 1 },
          table: 'system_options.value',
        },
      ]) {
        const first = { value: 'the first', process: 0, beganAt: 0, endedAt: 0 };
        await clients[0].put(path, { ...rest, [field]: first.value });
        first.endedAt = performance.now() - feedMs;
        await eventually(async () => (await clients[1].get(path)).body[field] === first.value);
        registers.push({
          tenant,
          clients,
          path,
          list,
          field,
          rest,
          table,
          writes: new Map<string, Write>([[first.value, first]]),
        });
      }
    }
    const id = (path: string) => Number(path.split('/').at(-1));
    const until = performance.now() + 3_000;
    let [reads, written] = [0, 0];
    const faults: string[] = [];

    const writer = async (n: number): Promise<void> => {
      for (let i = 0; performance.now() < until; i++) {
        const register = registers[(n + i) % registers.length] as Register;
        const process = (n + i) % 2;
        const value = `by ${n}, ${i}`;
        const write = { value, process, beganAt: performance.now(), endedAt: Number.POSITIVE_INFINITY };
        register.writes.set(value, write);
        const { status } = await (register.clients[process] as Client).put(register.path, {
          ...register.rest,
          [register.field]: value,
        });
        expect(status).to.equal(200);
        write.endedAt = performance.now();
        written++;
        // Bursts, and pauses in which something is kept.
        if (i % 4 === n) await delay(120);
      }
    };
    const reader = async (n: number): Promise<void> => {
      for (let i = 0; performance.now() < until; i++) {
        const { clients, path, list, field, writes } = registers[(n * 5 + i) % registers.length] as Register;
        const process = (n + (i >> 2)) % 2;
        const headers = i % 7 === 0 ? readThrough : {};
        const beganAt = performance.now();
        const { body } = await (clients[process] as Client).get(i % 3 === 0 ? list : path, headers);
        const row = Array.isArray(body) ? body.find(({ Id }) => Id === id(path)) : body;
        const read = writes.get(row[field]);
        const newer = [...writes.values()].find(
          write =>
            read &&
            write.beganAt >= read.endedAt &&
            write.endedAt + (write.process === process || i % 7 === 0 ? 0 : feedMs) <= beganAt,
        );
        if (!read || newer)
          faults.push(`${path} at ${process}: ${row[field]}, after ${newer?.value} of ${newer?.process}`);
        reads++;
      }
    };
    await Promise.all([...[0, 1, 2, 3].map(writer), ...[0, 1, 2, 3, 4, 5].map(reader)]);
    expect(faults).to.deep.equal([]);
    expect(reads).to.be.greaterThan(100);
    expect(written).to.be.greaterThan(30);
    await Promise.all(
      registers.map(async ({ tenant, clients, path, field, table }) => {
        const [name, column] = table.split('.');
        const [stored] = await sql<{ value: string }>(tenant, `select ${column} as value from ${name} where id = $1`, [
          id(path),
        ]);
        for (const client of clients) {
          await eventually(async () => (await client.get(path)).body[field] === stored?.value, feedMs);
          for (let i = 0; i < 3; i++) expect((await client.get(path)).body[field]).to.equal(stored?.value);
        }
      }),
    );
    if (process.env.MEASURE) process.stdout.write(`model: ${reads} reads, ${written} writes\n`);
  }

  async function renamed(name: string): Promise<string> {
    expect((await rename(acme[0], name)).status).to.equal(200);
    return name;
  }

  /** Both processes answer so, at the latest after the delay of the feed, and stay with it. */
  async function everywhere(name: string): Promise<void> {
    for (const client of acme) await eventually(async () => (await nameAt(client)) === name, feedMs);
    for (const client of [...acme, ...acme]) expect(await nameAt(client)).to.equal(name);
  }

  /** Lets both processes keep what they will be asked for. */
  async function keep(clients: [Client, Client]): Promise<void> {
    for (const client of clients)
      for (const path of [one, currencies, one]) expect((await client.get(path)).status).to.equal(200);
  }

  /**
   * Asks both processes what they have kept, while every query of the currencies of acme waits. When a burst of changes
   * was not over yet, or an announcement of it came in between, they have to keep it anew.
   */
  async function fromMemory(ask: (client: Client) => Promise<unknown>): Promise<void> {
    await eventually(async () => {
      await keep(acme);
      await withConnection(world.acme.adminUrl, async session => {
        await session.query('begin; lock table currencies in access exclusive mode');
        const late = delay(500).then(() => expect.fail('it waits for the database'));
        late.catch(() => {});
        for (const client of acme) await Promise.race([ask(client), late]);
        await session.query('rollback');
      });
      return true;
    }, 15_000);
  }

  function connectionsAllowed(allowed: boolean): Promise<unknown> {
    return operator(`alter database "${controlName}" allow_connections ${allowed}`);
  }

  function end(application: string): Promise<unknown> {
    return operator(
      `select pg_terminate_backend(pid, 2000) from pg_stat_activity
        where application_name = '${application}' and datname = '${controlName}'`,
    );
  }

  function readiness(): Promise<number[]> {
    return Promise.all(
      managementPorts.map(async port => (await fetch(`http://127.0.0.1:${port}/health/ready`)).status),
    );
  }
});

function operator(statement: string): Promise<object[]> {
  return withConnection(postgresUrl(), async client => (await client.query(statement)).rows);
}

function fail(): never {
  throw new Error('there is none');
}

/** Asks with these headers and no others: `fetch` adds `no-cache` to a conditional request. */
function raw(
  { url, tokens }: Client,
  path: string,
  headers: Record<string, string> = {},
): Promise<{ status: number | undefined; tag: string | undefined; text: string }> {
  return new Promise((resolve, reject) => {
    const options = { headers: { Authorization: `Bearer ${tokens?.accessToken}`, ...headers } };
    get(`${url}${path}`, options, async response => {
      let text = '';
      for await (const chunk of response.setEncoding('utf8')) text += chunk;
      resolve({ status: response.statusCode, tag: response.headers.etag, text });
    }).on('error', reject);
  });
}
