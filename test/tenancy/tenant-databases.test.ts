import { setImmediate as nextTurn } from 'node:timers/promises';
import { type EntityManager, RequestContext } from '@mikro-orm/postgresql';
import { expect } from 'chai';
import type { TenantRecord } from '../../src/control/directory.ts';
import { Problem } from '../../src/errors.ts';
import { tenantHead } from '../../src/fleet/migrate-tenants.ts';
import { EntityStatus } from '../../src/resources/entity-status.ts';
import { tenantEntities } from '../../src/resources/index.ts';
import { type Lease, TenantDatabases } from '../../src/tenancy/tenant-databases.ts';
import { createTenantOrm } from '../../src/tenancy/tenant-orm.ts';
import { eventually } from '../support/eventually.ts';
import { createWorld, sql, type World } from '../support/world.ts';
import { tenantRecord } from './records.ts';

describe('TenantDatabases', () => {
  let world: World;
  let head: string;
  let acme: TenantRecord;
  let globex: TenantRecord;
  let initech: TenantRecord;
  let umbrella: TenantRecord;
  let all: TenantRecord[];
  const opened: { databases: TenantDatabases; leases: Set<Lease> }[] = [];

  before(async () => {
    world = await createWorld();
    head = await tenantHead();
    const tenants = [world.acme, world.globex, await world.provision('initech'), await world.provision('umbrella')];
    all = await Promise.all(tenants.map(tenant => tenantRecord(world, tenant)));
    [acme, globex, initech, umbrella] = all as [TenantRecord, TenantRecord, TenantRecord, TenantRecord];
    for (const tenant of tenants)
      await sql(tenant, 'insert into entity_statuses (title) values ($1)', [`of ${tenant.slug}`]);
  });
  afterEach(async () => {
    for (const { databases, leases } of opened.splice(0)) {
      for (const lease of leases) lease.release();
      await databases.close();
    }
  });
  after(() => world.close());

  /** A registry of the test's own; what the test leaves leased is released and closed after it. */
  function open(maxOpen: number, { acquireTimeoutMs = 5_000, connectionsEach = 2 } = {}) {
    const databases = new TenantDatabases({
      orm: createTenantOrm(tenantEntities),
      head,
      maxOpen,
      connectionsEach,
      acquireTimeoutMs,
    });
    const leases = new Set<Lease>();
    opened.push({ databases, leases });
    return {
      databases,
      acquire: async (tenant: TenantRecord): Promise<Lease> => {
        const lease = await databases.acquire(tenant);
        leases.add(lease);
        return lease;
      },
      /** Leases the database for as long as the work takes. */
      use: async <T>(tenant: TenantRecord, work: (em: EntityManager) => Promise<T>): Promise<T> => {
        const lease = await databases.acquire(tenant);
        try {
          return await work(lease.entityManager());
        } finally {
          lease.release();
        }
      },
    };
  }

  describe('the limit', () => {
    it('is never passed, and every lease answers from its own tenant', async () => {
      const { databases, use } = open(2);
      let most = 0;
      let done = 0;
      await Promise.all(
        Array.from({ length: 400 }, async (_, i) => {
          const tenant = all[(i * 7 + (i >> 3)) % all.length] as TenantRecord;
          await use(tenant, async em => {
            most = Math.max(most, databases.usage.open);
            expect(await databaseOf(em)).to.equal(tenant.databaseName);
            most = Math.max(most, databases.usage.open);
            done++;
          });
        }),
      );
      expect([done, most]).to.deep.equal([400, 2]);
      expect(databases.usage.waiting).to.equal(0);
    });

    it('counts a database until its connections are closed', async () => {
      const { databases, use } = open(1);
      for (const tenant of [acme, globex, initech, umbrella, acme]) {
        await use(tenant, async em => {
          await databaseOf(em);
          expect(databases.usage.open).to.equal(1);
        });
      }
    });

    it('holds the connections to each database within theirs', async () => {
      const { use } = open(1, { connectionsEach: 2 });
      const pids = await Promise.all(
        Array.from({ length: 12 }, () =>
          use(acme, async em => {
            const [row] = await em.execute<{ pid: number }[]>('select pg_backend_pid() as pid, pg_sleep(0.01)');
            return row?.pid;
          }),
        ),
      );
      expect(new Set(pids).size).to.equal(2);
    });
  });

  describe('waiting', () => {
    it('is first come, first served', async () => {
      const { acquire, use } = open(1);
      const held = await acquire(acme);
      const served: string[] = [];
      const line = [umbrella, globex, initech].map(tenant => use(tenant, async () => served.push(tenant.slug)));
      await nextTurn();
      expect(served).to.deep.equal([]);
      held.release();
      await Promise.all(line);
      expect(served).to.deep.equal(['umbrella', 'globex', 'initech']);
    });

    it('ends also when the tenants that have the places never pause', async () => {
      const { use } = open(2);
      let running = true;
      const turns = new Map<string, number>();
      const hot = async (tenant: TenantRecord): Promise<void> => {
        while (running) {
          await use(tenant, databaseOf);
          turns.set(tenant.slug, (turns.get(tenant.slug) ?? 0) + 1);
        }
      };
      // Ten overlapping loops each: there is hardly a moment without a lease on either.
      const load = [acme, globex].flatMap(tenant => Array.from({ length: 10 }, () => hot(tenant)));
      await eventually(() => turns.size === 2 && [...turns.values()].every(n => n > 20), 3_000);
      for (let round = 0; round < 3; round++) {
        for (const tenant of [initech, umbrella]) {
          const startedAt = performance.now();
          expect(await use(tenant, databaseOf)).to.equal(tenant.databaseName);
          expect(performance.now() - startedAt).to.be.lessThan(2_000);
        }
      }
      const before = new Map(turns);
      await eventually(() => [...before].every(([slug, n]) => (turns.get(slug) ?? 0) > n + 20), 3_000);
      running = false;
      await Promise.all(load);
    });

    it('ends as soon as any place is idle, though another one was asked to leave first and is still busy', async () => {
      const { acquire } = open(2);
      await acquire(acme); // the one open the longest, and busy for the whole test
      const other = await acquire(globex);
      const third = acquire(initech);
      await nextTurn();
      other.release();
      expect(await databaseOf((await third).entityManager())).to.equal(initech.databaseName);
    });

    it('ends with "overloaded" when no place came free in time, and leaves nothing behind', async () => {
      const { databases, acquire, use } = open(1, { acquireTimeoutMs: 50 });
      const held = await acquire(acme);
      expectProblem(await failure(acquire(globex)), 'overloaded', 503);
      expect(databases.usage).to.deep.equal({ open: 1, waiting: 0 });
      held.release();
      await eventually(async () => (await use(globex, databaseOf)) === globex.databaseName, 1_000);
      expect(await use(acme, databaseOf)).to.equal(acme.databaseName);
    });

    it('holds nobody up once it was given up', async () => {
      const { acquire, use } = open(1, { acquireTimeoutMs: 50 });
      await acquire(acme); // busy for the whole test
      const patient = failure(acquire(globex));
      await nextTurn();
      const another = use(acme, databaseOf); // behind globex, until globex gives up
      expectProblem(await patient, 'overloaded', 503);
      expect(await another).to.equal(acme.databaseName);
      expect(await use(acme, databaseOf)).to.equal(acme.databaseName);
    });

    it('does not take a place from those who got in: they finish', async () => {
      const { acquire, use } = open(1);
      const held = await acquire(acme);
      const waiting = use(globex, databaseOf);
      for (let i = 0; i < 3; i++) expect(await databaseOf(held.entityManager())).to.equal(acme.databaseName);
      held.release();
      expect(await waiting).to.equal(globex.databaseName);
    });
  });

  describe('a lease', () => {
    it('gives no entity manager once it is released', async () => {
      const { acquire } = open(1);
      const lease = await acquire(acme);
      lease.release();
      expect(() => lease.entityManager()).to.throw('has been released');
    });

    it('may be released twice and counts once', async () => {
      const { databases, acquire } = open(1);
      const first = await acquire(acme);
      const second = await acquire(acme);
      first.release();
      first.release();
      const waiting = acquire(globex);
      expect(await databaseOf(second.entityManager())).to.equal(acme.databaseName);
      expect(databases.usage).to.deep.equal({ open: 1, waiting: 1 });
      second.release();
      expect(await databaseOf((await waiting).entityManager())).to.equal(globex.databaseName);
    });

    it('is refused for a tenant that is not active, or at another version', async () => {
      const { databases } = open(1);
      for (const status of ['suspended', 'deleted', 'provisioning'] as const)
        expectProblem(await failure(databases.acquire({ ...acme, status })), 'tenant_inactive', 403);
      for (const schemaVersion of [null, '0000-before', '9999-after'])
        expectProblem(await failure(databases.acquire({ ...acme, schemaVersion })), 'migration_pending', 503);
      expect(databases.usage.open).to.equal(0);
    });
  });

  describe('an entity manager', () => {
    it("answers from the tenant's own database, in and out of transactions and forks", async () => {
      const { acquire } = open(4);
      await Promise.all(
        all.map(async tenant => {
          const em = (await acquire(tenant)).entityManager();
          expect(await databaseOf(em)).to.equal(tenant.databaseName);
          expect(await databaseOf(em.fork())).to.equal(tenant.databaseName);
          expect(await em.transactional(databaseOf)).to.equal(tenant.databaseName);
          expect(await em.transactional(outer => outer.transactional(databaseOf))).to.equal(tenant.databaseName);
          expect(await titles(em)).to.include(`of ${tenant.slug}`);
        }),
      );
    });

    it('kept after its database was closed answers from nowhere', async () => {
      const { acquire, use } = open(1);
      const lease = await acquire(acme);
      const used = lease.entityManager();
      const unused = lease.entityManager();
      const fork = used.fork();
      expect(await databaseOf(used)).to.equal(acme.databaseName);
      lease.release();
      await use(globex, databaseOf);
      for (const em of [used, unused, fork]) {
        for (const attempt of [
          () => databaseOf(em),
          () => em.find(EntityStatus, {}),
          () => em.count(EntityStatus),
          () => em.transactional(databaseOf),
          () => em.insert(EntityStatus, { title: 'lost' } as never),
        ]) {
          expect((await failure(attempt())).message).to.include('has been closed');
        }
      }
    });

    it('kept from a database that was never asked anything answers from nowhere either', async () => {
      const { acquire, use } = open(1);
      const lease = await acquire(acme);
      const em = lease.entityManager();
      lease.release();
      await use(globex, databaseOf);
      expect((await failure(databaseOf(em))).message).to.include('has been closed');
    });

    it('has no result cache, which tenants would share', async () => {
      const { acquire } = open(1);
      const em = (await acquire(acme)).entityManager();
      for (const attempt of [
        () => em.find(EntityStatus, {}, { cache: 1_000 }),
        () => em.findOne(EntityStatus, { id: 1 }, { cache: ['key', 1_000] }),
        () => em.count(EntityStatus, {}, { cache: 1_000 }),
      ]) {
        expect((await failure(attempt())).message).to.include('shared between tenants');
      }
    });

    it('shares no loaded entity with another one', async () => {
      const { acquire } = open(2);
      const lease = await acquire(acme);
      const [a, b, c] = [lease.entityManager(), lease.entityManager(), (await acquire(globex)).entityManager()];
      const [first, second, foreign] = await Promise.all(
        [a, b, c].map(em => em.findOneOrFail(EntityStatus, { id: 1 })),
      );
      expect(first).to.not.equal(second);
      expect(first).to.not.equal(foreign);
      first!.title = 'changed in memory only';
      expect((await b.findOneOrFail(EntityStatus, { id: 1 })).title).to.equal('Prospect');
    });

    it("stays with its tenant inside another tenant's MikroORM context or transaction", async () => {
      const { acquire } = open(2);
      const mine = (await acquire(acme)).entityManager();
      const other = (await acquire(globex)).entityManager();
      const answers = async (): Promise<string[]> => [
        await databaseOf(mine),
        await databaseOf(mine.fork()),
        await mine.transactional(databaseOf),
        (await titles(mine)).filter(title => title.startsWith('of ')).join(),
        (await titles(mine.fork())).filter(title => title.startsWith('of ')).join(),
      ];
      const { databaseName } = acme;
      const own = [databaseName, databaseName, databaseName, 'of acme', 'of acme'];
      expect(await RequestContext.create(other, answers)).to.deep.equal(own);
      expect(await other.transactional(answers)).to.deep.equal(own);
      expect(await RequestContext.create(other, () => other.transactional(answers))).to.deep.equal(own);
    });

    it('cannot be had without a tenant: what all share reaches no database', async () => {
      const orm = createTenantOrm(tenantEntities);
      const error = await failure(orm.em.fork().find(EntityStatus, {}));
      expect(error).to.include({ code: 'ENOTFOUND' });
      await orm.close(true);
    });
  });

  describe('close', () => {
    it('waits for those who have a lease, and gives out no more', async () => {
      const { databases, acquire } = open(2);
      const lease = await acquire(acme);
      await (await acquire(globex)).release();
      let closed = false;
      const closing = databases.close().then(() => {
        closed = true;
      });
      expectProblem(await failure(acquire(initech)), 'unavailable', 503);
      expectProblem(await failure(acquire(acme)), 'unavailable', 503);
      expect(await databaseOf(lease.entityManager())).to.equal(acme.databaseName);
      await eventually(() => databases.usage.open === 1, 1_000);
      expect(closed).to.equal(false);
      lease.release();
      await closing;
      expect(databases.usage).to.deep.equal({ open: 0, waiting: 0 });
    });

    it('sends away those who wait in line, and ends', async () => {
      const { databases, acquire } = open(1);
      const lease = await acquire(acme);
      const waiting = failure(acquire(globex));
      const closing = databases.close();
      lease.release();
      expectProblem(await waiting, 'unavailable', 503);
      await closing;
      expect(databases.usage).to.deep.equal({ open: 0, waiting: 0 });
    });
  });

  it('opens anew, and verifies anew, when the address of a database changes', async () => {
    const { databases, use } = open(4);
    await use(acme, databaseOf);
    const moved = { ...acme, databaseName: globex.databaseName, databaseUrl: globex.databaseUrl };
    const error = await failure(use(moved, databaseOf));
    expect(error).to.include({ code: 'TENANT_IDENTITY' });
    expect(databases.usage.open).to.equal(2);
    expect(await use(acme, databaseOf)).to.equal(acme.databaseName);
  });
});

async function databaseOf(em: EntityManager): Promise<string> {
  const [row] = await em.execute<{ name: string }[]>('select current_database() as name');
  return row?.name ?? '';
}

async function titles(em: EntityManager): Promise<string[]> {
  return (await em.find(EntityStatus, {})).map(({ title }) => title);
}

async function failure(promise: Promise<unknown>): Promise<Error & { code?: string }> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (!(error instanceof Error)) throw new Error('it did not fail');
  return error;
}

function expectProblem(error: Error, code: string, status: number): void {
  expect(error).to.be.instanceOf(Problem);
  expect(error).to.include({ code, status });
}
