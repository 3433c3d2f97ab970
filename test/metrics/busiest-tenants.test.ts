import { expect } from 'chai';
import { Registry } from 'prom-client';
import { addTenantRequests, BusiestTenants, maxNamed } from '../../src/metrics/busiest-tenants.ts';
import { WorkerMetrics } from '../../src/metrics/worker-metrics.ts';

const minute = 60_000;

describe('busiest tenants in the metrics', () => {
  let now = 0;
  const create = () => new BusiestTenants(() => now);
  const addAll = (tenants: BusiestTenants, from: number, to: number, requests = 1): void => {
    for (let i = from; i < to; i++) tenants.add(`tenant-${i}`, requests);
  };
  const namesAfter = (tenants: BusiestTenants, ms: number): string[] => {
    now += ms;
    tenants.read();
    return tenants.read().map(([slug]) => slug);
  };
  const sum = (counts: [string, number][]): number => counts.reduce((total, [, count]) => total + count, 0);

  it('metrics name the 20 busiest tenants of the last minutes, and count all others as one', () => {
    const tenants = create();
    addAll(tenants, 0, 10_000);
    addAll(tenants, 500, 510, 100);
    expect(tenants.read()).to.have.length(maxNamed + 1);
    const names = namesAfter(tenants, 5 * minute);
    expect(names).to.have.length(maxNamed + 1);
    for (let i = 500; i < 510; i++) expect(names).to.include(`tenant-${i}`);
    expect(Object.fromEntries(tenants.read()).other).to.equal(10_000 - 20 + 1_000);
  });

  it('no counter ever falls and no request is counted twice or lost, however names change', () => {
    const tenants = create();
    const last = new Map<string, number>();
    let random = 1;
    let sent = 0;
    let increases = 0;
    for (let round = 0; round < 300; round++) {
      for (let i = 0; i < 200; i++) {
        random = (random * 48_271) % 2_147_483_647;
        tenants.add(`tenant-${(round >> 3) * 7 + (random % 60)}`);
        sent++;
      }
      now += minute;
      for (const [slug, count] of tenants.read()) {
        const before = last.get(slug) ?? 0;
        expect(count, slug).to.be.at.least(before);
        increases += count - before;
        last.set(slug, count);
      }
    }
    expect(last.size).to.be.above(2 * maxNamed);
    expect(increases).to.equal(sent);
  });

  it('tenants with similar traffic do not take turns, and an idle tenant keeps its name while there is room', () => {
    const tenants = create();
    addAll(tenants, 0, 21, 10);
    const names = namesAfter(tenants, 5 * minute);
    addAll(tenants, 0, 20, 10);
    addAll(tenants, 20, 21, 15);
    expect(namesAfter(tenants, 5 * minute)).to.deep.equal(names);
    const few = create();
    addAll(few, 0, 3);
    for (let hour = 0; hour < 3; hour++) expect(namesAfter(few, 60 * minute)).to.have.length(3);
  });

  it('requests of a tenant with the slug "other" count under `other`, like those of tenants without a name', () => {
    const tenants = create();
    tenants.add('other', 3);
    addAll(tenants, 0, 2);
    expect(tenants.read()).to.deep.equal([
      ['tenant-0', 1],
      ['tenant-1', 1],
      ['other', 3],
    ]);
  });

  it('the workers of one start name 20 tenants together, and each of their requests is in exactly one counter', async () => {
    const metrics = new WorkerMetrics(
      () => ({ serving: 2, died: 0 }),
      () => now,
    );
    const workers = [1, 2].map(number => {
      const registry = new Registry();
      const tenants = create();
      addTenantRequests(registry, tenants);
      const send = async () => metrics.record(number, JSON.parse(JSON.stringify(await registry.getMetricsAsJSON())));
      return { tenants, send };
    });
    const read = async (): Promise<[string, number][]> => {
      const text = await metrics.render();
      return [...text.matchAll(/^tenant_requests_total\{tenant="(.*?)"\} (\d+)$/gm)].map(([, slug = '', count]) => [
        slug,
        Number(count),
      ]);
    };
    let sent = 0;
    const last = new Map<string, number>();
    for (let round = 0; round < 40; round++) {
      for (const [index, { tenants }] of workers.entries()) {
        addAll(tenants, round * 3 + index * 15, round * 3 + index * 15 + 25, 2);
        sent += 50;
      }
      now += minute;
      for (const { send } of workers) await send();
      const counts = await read();
      expect(counts.length).to.be.at.most(maxNamed + 1);
      for (const [slug, count] of counts) {
        expect(count, slug).to.be.at.least(last.get(slug) ?? 0);
        last.set(slug, count);
      }
    }
    expect(sum([...last])).to.equal(sent);
    const before = await read();
    metrics.end(1);
    expect(await read()).to.deep.equal(before);
  });
});
