import { Random } from '../test/simulation/random.ts';
import { startLoad } from './load.ts';
import { memoryOf } from './memory.ts';
import type { Plan, Request } from './plan.ts';
import { readScriptOptions } from './script-options.ts';
import { startServer, type Target, withTargets } from './targets.ts';
import { openTestbed } from './testbed.ts';
import { Tokens } from './tokens.ts';
import { loginRequests } from './workloads/single-tenant.ts';

/**
 * Memory of the service under a steady mixed load: cached and uncached reads, lists, creates
 * and logins of several tenants. The load is far below what the service can do, so that the
 * bench may run for hours beside other work.
 */
const usage = {
  command: 'bench:memory',
  text: 'Reads the memory of the service each minute under a steady mixed load.',
};
const { minutes, tenants, rate } = readScriptOptions(usage, {
  minutes: 30,
  tenants: 20,
  rate: 150,
});
const maxGrowth = 1.1;
const pauseMs = 100;
const orderLength = 5_000;

let close = async (): Promise<void> => {};
try {
  const onOpen = (end: () => Promise<void>): void => {
    close = end;
  };
  const testbed = await openTestbed({ tenantCount: Math.max(tenants, 10), isTuned: false, onOpen });
  const tokens = new Tokens(testbed);
  const all = testbed.tenants.map((_, index) => index);
  await withTargets([() => startServer(testbed, { probe: true })], async service => {
    const measured = [];
    for (let minute = 1; minute <= minutes; minute++) {
      await tokens.renew(service, all);
      const load = await startLoad(
        testbed.children,
        testbed.folder,
        service.url,
        plan(service, tokens, all),
        60,
      );
      const { requests, statusErrors, socketErrors, p99 } = await load.result;

      // Memory without a collection, which would hide what V8 postpones.
      const memory = await memoryOf(service, 'read');
      measured.push(memory);

      const [resident, heap] = [memory.resident, memory.heap].map(mb => mb.toFixed(1));
      console.log(
        `minute ${minute}: resident ${resident} MB, heap ${heap} MB, ${Math.round(requests / 60)}/s, p99 ${p99} ms,` +
          ` errors ${statusErrors + socketErrors}`,
      );

      if (minute === 1 || minute === minutes) {
        const { heap } = await memoryOf(service, 'collect');
        console.log(`minute ${minute}: heap after a garbage collection ${heap.toFixed(1)} MB`);
      }
    }

    const growth =
      (measured.at(-1)?.resident ?? Number.NaN) / (measured[0]?.resident ?? Number.NaN);
    console.log(
      `resident memory, minute ${minutes} / minute 1: ${growth.toFixed(2)} (aim: ≤ ${maxGrowth})`,
    );
  });

  function plan(service: Target, tokens: Tokens, all: number[]): Plan {
    const get = (tenant: number, path: string, headers = {}): Request => ({
      method: 'GET',
      path,
      headers: { ...tokens.headersFor(service, tenant), ...headers },
    });

    const post = (tenant: number, path: string, body: object): Request => ({
      ...get(tenant, path, { 'Content-Type': 'application/json' }),
      method: 'POST',
      body: JSON.stringify(body),
    });

    // Requests of one kind, and their share of all.
    const kinds: [number, Request[]][] = [
      [25, all.map(tenant => get(tenant, '/api/v1/EntityStatus/1'))],
      [10, all.map(tenant => get(tenant, '/api/v1/EntityStatus'))],
      [10, [get(0, '/api/v1/UnitsOfMeasure')]],
      [
        15,
        all.map(tenant => get(tenant, '/api/v1/EntityStatus/1', { 'Cache-Control': 'no-cache' })),
      ],
      [5, [get(0, '/api/v1/Activity/500'), get(0, '/api/v1/Entities/50')]],
      [9, [get(0, '/api/v1/Activity'), get(0, '/api/v1/AuditLog')]],
      [5, [get(0, '/api/v1/Entities?sort=Name&limit=50'), get(0, '/api/v1/Users?sort=Email')]],
      [
        15,
        all.map(tenant =>
          post(tenant, '/api/v1/Activity', {
            ActivityCode: 100,
            EntityId: null,
            Comment: 'Called',
          }),
        ),
      ],
      [5, [post(0, '/api/v1/OrderStatuses', { Name: 'Shipped', Weighting: 30 })]],
      [1, loginRequests(testbed, service)],
    ];

    const requests = kinds.flatMap(([, requests]) => requests);
    const random = new Random(1);
    const order = Array.from({ length: orderLength }, () => {
      let point = random.next() * kinds.reduce((sum, [share]) => sum + share, 0);
      let first = 0;

      for (const [share, { length }] of kinds) {
        if (point < share) return first + Math.floor(random.next() * length);
        point -= share;
        first += length;
      }
      return 0;
    });

    return {
      requests,
      order,
      connections: Math.ceil((rate * pauseMs) / 1_000),
      pauseMs,
      expect: { status: 200 },
    };
  }
} finally {
  await close();
}
