import { setImmediate } from 'node:timers/promises';
import { expect } from 'chai';
import fc from 'fast-check';
import { Announcer } from '../../../src/control/announcer.ts';
import type { TenantRecord } from '../../../src/control/records.ts';
import type { Representation } from '../../../src/lib/http/response/representation.ts';
import type { RowValues } from '../../../src/lib/postgres/statement.ts';
import type { CacheableRows } from '../../../src/tenancy/connections/tenant-reads.ts';
import { ResponseCache } from '../../../src/tenancy/response-cache/response-cache.ts';
import { eventually } from '../../support/eventually.ts';
import { createOwnFeed, type OwnFeed } from '../../support/own-feed.ts';
import { createWorld, type World } from '../../support/world.ts';
import { tenantRecord } from '../records.ts';

const currency = 'Currency';
const key = 'list';

describe('limits of the response cache', () => {
  let world: World;
  let tenant: TenantRecord;
  let otherTenant: TenantRecord;
  const feeds: OwnFeed[] = [];

  before(async () => {
    world = await createWorld();
    tenant = await tenantRecord(world, world.acme);
    otherTenant = await tenantRecord(world, world.globex);
  });
  afterEach(async () => {
    await Promise.all(feeds.splice(0).map(feed => feed.stop()));
  });
  after(() => world.close());

  /** Creates a cache with a change feed of its own, as each process has one. */
  async function create(maxBytes = 1_000_000, now?: () => number): Promise<ResponseCache> {
    const { announce } = new Announcer(world.control);
    const own = createOwnFeed(world);
    const { feed } = own;
    feeds.push(own);
    const cache = new ResponseCache({ feed, announce, maxBytes, now });
    await own.start();
    return cache;
  }
  const cacheable = (...rows: RowValues[]): Promise<CacheableRows> =>
    Promise.resolve({ rows, isCacheable: true });
  const bodyOf = ({ body }: Representation) => JSON.parse(body.toString());
  /** The body of the cached list of currencies. */
  const found = (cache: ResponseCache) =>
    bodyOf(cache.find(tenant, currency, key) as Representation);
  const load = (cache: ResponseCache, record: TenantRecord, responseKey: string, row: RowValues) =>
    cache.load(
      record,
      currency,
      responseKey,
      () => cacheable(row),
      rows => rows,
    );

  it('a cached response is served for at most a minute', async () => {
    let now = 5_000;
    const cache = await create(undefined, () => now);
    await load(cache, tenant, key, { n: 1 });
    now += 44_999;
    expect(found(cache)).to.deep.equal([{ n: 1 }]);
    now += 15_002;
    expect(cache.find(tenant, currency, key)).to.equal(undefined);
    await load(cache, tenant, key, { n: 2 });
    expect(found(cache)).to.deep.equal([{ n: 2 }]);
  });

  it('responses that were read at the same time expire one after another', async () => {
    let now = 5_000;
    const cache = await create(undefined, () => now);
    const keys = Array.from({ length: 100 }, (_, i) => `id = ? ${i}`);
    for (const each of keys) await load(cache, tenant, each, { n: 1 });
    now += 52_500;
    expect(keys.filter(each => cache.find(tenant, currency, each))).to.have.length.within(10, 90);
  });

  it('concurrent requests share one read, but after a change no request gets a read older than itself', async () => {
    const cache = await create();
    const reads: ((result: CacheableRows) => void)[] = [];
    const request = () =>
      cache.load(
        tenant,
        currency,
        key,
        () => new Promise<CacheableRows>(resolve => reads.push(resolve)),
        ([row]) => row ?? notFound(),
      );
    const shared = [request(), request(), request()];
    await eventually(() => reads.length > 0);
    reads[0]?.({ rows: [{ n: 1 }], isCacheable: true });
    expect((await Promise.all(shared)).map(bodyOf)).to.deep.equal([{ n: 1 }, { n: 1 }, { n: 1 }]);
    expect(reads).to.have.length(1);

    for (const rows of [[{ n: 2 }], []]) {
      await change(cache, tenant, currency);
      reads.length = 0;
      const early = request().catch((error: Error) => error);
      await eventually(() => reads.length === 1);
      // From here on, another change has been made. The late requests may know of it.
      await change(cache, tenant, currency);
      const late = [request(), request()];
      reads[0]?.({ rows, isCacheable: true });
      await early;
      await eventually(() => reads.length === 2);
      reads[1]?.({ rows: [{ n: 3 }], isCacheable: true });
      expect((await Promise.all(late)).map(bodyOf)).to.deep.equal([{ n: 3 }, { n: 3 }]);
      expect(found(cache)).to.deep.equal({ n: 3 });
    }
  });

  it('a read that begins before a change and returns after it is not cached', async () => {
    const cache = await create();
    let finish: (result: CacheableRows) => void = () => {};
    const reading = cache.load(
      tenant,
      currency,
      key,
      () => new Promise<CacheableRows>(resolve => (finish = resolve)),
      rows => rows,
    );
    await eventually(() => finish.length === 1);

    await change(cache, tenant, currency);
    finish({ rows: [{ n: 1 }], isCacheable: true });
    await reading;

    expect(cache.find(tenant, currency, key)).to.equal(undefined);
    expect(cache.bytes).to.equal(0);
  });

  it('a read of a standby is not cached', async () => {
    const cache = await create();

    await cache.load(
      tenant,
      currency,
      key,
      async () => ({ rows: [{ n: 1 }], isCacheable: false }),
      rows => rows,
    );

    expect(cache.find(tenant, currency, key)).to.equal(undefined);
  });

  it('the cache never exceeds its memory limit, whatever is loaded and changed, and frees all memory', async () => {
    const maxBytes = 160_000;
    const resources = ['Currency', 'Country', 'TaxCode'];
    const operation = fc.record({
      tenant: fc.nat(39),
      resource: fc.constantFrom(...resources),
      key: fc.nat(30),
      size: fc.oneof(fc.nat(400), fc.nat(12_000)),
      act: fc.constantFrom('load', 'load', 'load', 'load', 'load', 'find', 'change', 'new record'),
    });

    await fc.assert(
      fc.asyncProperty(
        fc.array(operation, { minLength: 200, maxLength: 400 }),
        async operations => {
          const cache = await create(maxBytes);
          const records = Array.from(
            { length: 40 },
            (_, i) => ({ ...tenant, guid: `tenant-${i}` }) as TenantRecord,
          );

          await Promise.all(
            operations.map(async ({ tenant, resource, key, size, act }) => {
              const record = records[tenant] as TenantRecord;

              if (act === 'new record') {
                records[tenant] = { ...record };
              } else if (act === 'find') {
                cache.find(record, resource, String(key));
              } else if (act === 'change') {
                await change(cache, record, resource);
              } else {
                await cache.load(
                  record,
                  resource,
                  String(key),
                  () => cacheable({ text: 'x'.repeat(size) }),
                  rows => rows,
                );
              }

              expect(cache.bytes).to.be.within(0, maxBytes);
            }),
          );

          const used = cache.bytes;
          for (const record of records) {
            for (const resource of resources) await change(cache, record, resource);
          }
          expect(used).to.be.greaterThan(0);
          expect(cache.bytes).to.equal(0);
        },
      ),
      { numRuns: 4, endOnFailure: true },
    );
  });

  it('a tenant with many or large responses evicts no response of another tenant', async () => {
    // 5,000 loads on a busy machine take longer than a response lasts.
    const cache = await create(160_000, () => 5_000);
    await load(cache, otherTenant, key, { of: 'other' });
    const otherBytes = cache.bytes;

    await load(cache, tenant, 'small', { n: 1 });
    await load(cache, tenant, 'large', { text: 'x'.repeat(50_000) });
    expect(cache.find(tenant, currency, 'large')).to.equal(undefined);
    expect(bodyOf(cache.find(tenant, currency, 'small') as Representation)).to.deep.equal([
      { n: 1 },
    ]);

    for (let i = 0; i < 5_000; i++) {
      if (i % 50 === 0) await setImmediate(); // lets the change feed go on
      await load(cache, tenant, `id ${i}`, { i });
      expect(cache.bytes - otherBytes).to.be.within(0, 10_000);
    }

    expect(bodyOf(cache.find(otherTenant, currency, key) as Representation)).to.deep.equal([
      { of: 'other' },
    ]);
  });
});

/** Makes a change that another process may have made, or this one. */
function change(cache: ResponseCache, tenant: TenantRecord, resource: string): Promise<void> {
  return cache.changing(tenant, resource, async () => {});
}

function notFound(): never {
  throw new Error('the record does not exist');
}
