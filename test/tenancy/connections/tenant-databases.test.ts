import { type EntityManager, RequestContext } from '@mikro-orm/postgresql';
import { expect } from 'chai';
import type { TenantRecord } from '../../../src/control/records.ts';
import { tenantHead } from '../../../src/control/tenant-head.ts';
import { Problem } from '../../../src/lib/problems.ts';
import { EntityStatus } from '../../../src/sales/resources/entity-status.ts';
import { tenantEntities } from '../../../src/sales/tenant-entities.ts';
import { TenantDatabases } from '../../../src/tenancy/connections/tenant-databases.ts';
import { createTenantOrm } from '../../../src/tenancy/tenant-orm.ts';
import { errorOf } from '../../support/errors.ts';
import { eventually } from '../../support/eventually.ts';
import { sql, useWorld } from '../../support/world.ts';
import { tenantRecord } from '../records.ts';

const noConnections = { open: 0, inUse: 0, waiting: 0 };

describe('tenant databases', () => {
  const world = useWorld();
  let head: string;
  let acme: TenantRecord;
  let globex: TenantRecord;
  let initech: TenantRecord;
  let all: TenantRecord[];
  const opened: TenantDatabases[] = [];

  before(async () => {
    head = await tenantHead();
    const tenants = [world.acme, world.globex, await world.provision('initech')];
    all = await Promise.all(tenants.map(tenant => tenantRecord(world, tenant)));
    [acme, globex, initech] = all as [TenantRecord, TenantRecord, TenantRecord];
    for (const tenant of tenants) {
      await sql(tenant, 'insert into entity_statuses (title) values ($1)', [`of ${tenant.slug}`]);
    }
  });
  afterEach(async () => {
    await Promise.all(opened.splice(0).map(databases => databases.close()));
  });

  /** Creates tenant databases that are closed after the test. */
  function create({ connectionBudget = 8, tenantConnections = 2 } = {}): TenantDatabases {
    const databases = new TenantDatabases({
      orm: createTenantOrm(tenantEntities),
      head,
      controlUrl: 'postgresql://another-server.invalid/control',
      controlConnections: 1,
      connectionBudget,
      tenantConnections,
      acquireTimeoutMs: 5_000,
    });
    opened.push(databases);
    return databases;
  }

  it('opening a database connects on first use, and returns the same driver for the same tenant', async () => {
    const databases = create();
    const driver = databases.open(acme);
    expect(databases.open(acme)).to.equal(driver);
    expect(databases.open({ ...acme, name: 'Acme renamed' })).to.equal(driver);
    expect(databases.open(globex)).to.not.equal(driver);
    expect(databases.budgets.usage).to.deep.equal(noConnections);
    expect(await databaseOf(driver.entityManager())).to.equal(acme.databaseName);
    expect(databases.budgets.usage).to.deep.equal({ open: 1, inUse: 0, waiting: 0 });
  });

  it('the database of a tenant that is inactive or at another schema version is not opened', () => {
    const databases = create();

    for (const status of ['suspended', 'deleted', 'provisioning'] as const) {
      expectProblem(
        thrownBy(() => databases.open({ ...acme, status })),
        'tenant_inactive',
        403,
      );
    }

    for (const schemaVersion of [null, '0000-before', '9999-after']) {
      expectProblem(
        thrownBy(() => databases.open({ ...acme, schemaVersion, compatibleFrom: schemaVersion })),
        'migration_pending',
        503,
      );
    }

    expect(databases.budgets.usage).to.deep.equal(noConnections);
  });

  it('each tenant is served from its own database, although there are fewer connections than tenants', async () => {
    const databases = create({ connectionBudget: 2 });
    await Promise.all(
      Array.from({ length: 90 }, async (_, i) => {
        const tenant = all[(i * 7 + (i >> 3)) % all.length] as TenantRecord;
        const em = databases.open(tenant).entityManager();
        expect(await databaseOf(em)).to.equal(tenant.databaseName);
      }),
    );
    expect(databases.budgets.usage).to.include({ inUse: 0, waiting: 0 });
  });

  describe('entity managers', () => {
    it("an entity manager queries its tenant's own database, in and out of transactions and forks", async () => {
      const databases = create();

      await Promise.all(
        all.map(async tenant => {
          const em = databases.open(tenant).entityManager();

          expect(await databaseOf(em)).to.equal(tenant.databaseName);
          expect(await databaseOf(em.fork())).to.equal(tenant.databaseName);
          expect(await em.transactional(databaseOf)).to.equal(tenant.databaseName);
          expect(await em.transactional(outer => outer.transactional(databaseOf))).to.equal(
            tenant.databaseName,
          );
          expect(await titles(em)).to.include(`of ${tenant.slug}`);
        }),
      );
    });

    it('an entity manager reaches no database after closing, whether it was used before or not', async () => {
      const databases = create();
      const [driver, unusedDriver] = [databases.open(acme), databases.open(globex)];
      const used = driver.entityManager();
      const unused = driver.entityManager();
      const fork = used.fork();

      expect(await databaseOf(used)).to.equal(acme.databaseName);
      await databases.close();

      for (const em of [used, unused, fork, unusedDriver.entityManager()]) {
        for (const attempt of [
          () => databaseOf(em),
          () => em.find(EntityStatus, {}),
          () => em.count(EntityStatus),
          () => em.transactional(databaseOf),
          () => em.insert(EntityStatus, { title: 'lost' } as never),
        ]) {
          expect((await errorOf(attempt())).message).to.include('has been closed');
        }
      }

      const select = {
        name: 'one',
        text: 'select 1 as one',
        values: [],
        types: { getTypeParser: () => String },
      };
      for (const attempt of [
        () => driver.reads.read(select),
        () => unusedDriver.reads.readCacheable(select),
      ]) {
        expect((await errorOf(attempt())).message).to.include('has been closed');
      }

      expect(databases.budgets.usage).to.deep.equal(noConnections);
    });

    it('an entity manager has no result cache, which tenants would share', async () => {
      const databases = create();
      const em = databases.open(acme).entityManager();
      for (const attempt of [
        () => em.find(EntityStatus, {}, { cache: 1_000 }),
        () => em.findOne(EntityStatus, { id: 1 }, { cache: ['key', 1_000] }),
        () => em.count(EntityStatus, {}, { cache: 1_000 }),
      ]) {
        expect((await errorOf(attempt())).message).to.include('shared between tenants');
      }
    });

    it('two entity managers share no loaded entity', async () => {
      const databases = create();
      const [a, b, c] = [acme, acme, globex].map(tenant => databases.open(tenant).entityManager());
      const [first, second, foreign] = await Promise.all(
        [a, b, c].map(em => em!.findOneOrFail(EntityStatus, { id: 1 })),
      );
      expect(first).to.not.equal(second);
      expect(first).to.not.equal(foreign);
      first!.title = 'changed in memory only';
      expect((await b!.findOneOrFail(EntityStatus, { id: 1 })).title).to.equal('Prospect');
    });

    it("an entity manager stays with its tenant inside another tenant's MikroORM context or transaction", async () => {
      const databases = create();
      const em = databases.open(acme).entityManager();
      const otherEm = databases.open(globex).entityManager();

      const results = async (): Promise<string[]> => [
        await databaseOf(em),
        await databaseOf(em.fork()),
        await em.transactional(databaseOf),
        (await titles(em)).filter(title => title.startsWith('of ')).join(),
        (await titles(em.fork())).filter(title => title.startsWith('of ')).join(),
      ];

      const { databaseName } = acme;
      const expected = [databaseName, databaseName, databaseName, 'of acme', 'of acme'];

      expect(await RequestContext.create(otherEm, results)).to.deep.equal(expected);
      expect(await otherEm.transactional(results)).to.deep.equal(expected);
      expect(
        await RequestContext.create(otherEm, () => otherEm.transactional(results)),
      ).to.deep.equal(expected);
    });

    it('an entity manager of the shared MikroORM, without a tenant, reaches no database', async () => {
      const orm = createTenantOrm(tenantEntities);
      const error = await errorOf(orm.em.fork().find(EntityStatus, {}));
      expect(error).to.include({ code: 'ENOTFOUND' });
      await orm.close(true);
    });
  });

  describe('closing', () => {
    it('closing waits for the connections in use, and no database is opened afterwards', async () => {
      const databases = create();
      const select = databaseOf(databases.open(globex).entityManager());
      let closed = false;
      let closing: Promise<unknown> = Promise.resolve();
      const driver = databases.open(acme);

      await driver.entityManager().transactional(async em => {
        expect(await databaseOf(em)).to.equal(acme.databaseName);
        await select;
        closing = databases.close().then(() => {
          closed = true;
        });

        for (const tenant of [initech, acme]) {
          expectProblem(
            thrownBy(() => databases.open(tenant)),
            'unavailable',
            503,
          );
        }

        await eventually(() => databases.budgets.usage.open === 1);
        expect(await databaseOf(em)).to.equal(acme.databaseName);
        expect(closed).to.equal(false);
      });

      await closing;
      expect(databases.budgets.usage).to.deep.equal(noConnections);
    });

    it('closing rejects the requests that wait for a connection', async () => {
      const databases = create({ connectionBudget: 1 });
      let waiter: Promise<Error> | undefined;
      let closing: Promise<void> | undefined;

      await databases
        .open(acme)
        .entityManager()
        .transactional(async em => {
          await databaseOf(em);
          waiter = errorOf(databaseOf(databases.open(globex).entityManager()));
          await eventually(() => databases.budgets.usage.waiting === 1);

          closing = databases.close();
          expect((await waiter)?.message).to.include('has been closed');
        });

      await closing;
      expect(databases.budgets.usage).to.deep.equal(noConnections);
    });

    it('closing succeeds while connections are being opened, and when called twice', async () => {
      const databases = create();
      const queries = Promise.allSettled(
        all.map(tenant => databaseOf(databases.open(tenant).entityManager())),
      );

      await eventually(() => databases.budgets.usage.open > 0);
      await Promise.all([databases.close(), databases.close()]);

      for (const result of await queries) {
        if (result.status === 'rejected') {
          expect(result.reason.message).to.include('has been closed');
        }
      }
      expect(databases.budgets.usage).to.deep.equal(noConnections);
    });
  });

  it('a change of the database URL opens new connections, which are verified', async () => {
    const databases = create();
    await databaseOf(databases.open(acme).entityManager());
    const moved = { ...acme, databaseName: globex.databaseName, databaseUrl: globex.databaseUrl };
    for (let i = 0; i < 3; i++) {
      const error = await errorOf(databaseOf(databases.open(moved).entityManager()));
      expect(error).to.include({ code: 'TENANT_IDENTITY' });
    }
    expect(await databaseOf(databases.open(acme).entityManager())).to.equal(acme.databaseName);
    await eventually(() => databases.budgets.usage.open === 1);
  });
});

async function databaseOf(em: EntityManager): Promise<string> {
  const [row] = await em.execute<{ name: string }[]>('select current_database() as name');
  return row?.name ?? '';
}

async function titles(em: EntityManager): Promise<string[]> {
  return (await em.find(EntityStatus, {})).map(({ title }) => title);
}

function thrownBy(work: () => unknown): Error {
  try {
    work();
  } catch (error) {
    return error as Error;
  }
  throw new Error('it did not throw');
}

function expectProblem(error: Error, code: string, status: number): void {
  expect(error).to.be.instanceOf(Problem);
  expect(error).to.include({ code, status });
}
