import { prepare } from '../call.ts';
import { type BenchContext, measureCases } from '../measure.ts';
import type { Plan } from '../plan.ts';
import { startServer, type Target, withTargets } from '../targets.ts';
import { ratios, type Workload } from '../workload.ts';

const path = '/api/v1/EntityStatus/1';
const connections = 32;
const tenant = 0;

/** Cached reads with the key of a program, compared with those of a verified access token. */
export const keyReads: Workload = {
  name: 'key',
  title: 'a single record by its id, with the key of a program',
  run: bench =>
    withTargets([() => startServer(bench.testbed)], async target => {
      await bench.tokens.renew(target, [tenant]);
      const key = await makeKey(bench, target);
      const reading = (headers: Readonly<Record<string, string>>): Plan => ({
        requests: [{ method: 'GET', path, headers }],
        connections,
        expect: { status: 200 },
      });
      const ofCase = { target, tenants: [tenant] };
      const results = await measureCases(bench, 'key', [
        {
          ...ofCase,
          name: 'access token',
          plan: () => reading(bench.tokens.headersFor(target, tenant)),
        },
        { ...ofCase, name: 'key', plan: () => reading({ Authorization: `Bearer ${key}` }) },
      ]);

      const figures = [
        {
          text: 'CPU of a cached read, key of a program / access token',
          values: ratios(results, 'key', 'access token', 'cpuServer'),
          aim: { atMost: 1.05 },
        },
      ];
      return { results, figures, notes: [] };
    }),
};

/** Makes a program and a key of it, as an administrator does. */
async function makeKey({ testbed, tokens }: BenchContext, target: Target): Promise<string> {
  const post = async (to: string, body: object): Promise<Record<string, unknown>> => {
    const headers = {
      ...tokens.headersFor(target, tenant),
      'Content-Type': 'application/json',
    };
    const request = { method: 'POST', path: to, headers, body: JSON.stringify(body) } as const;
    const response = await prepare(target.url, request);
    if (response.status >= 300) {
      throw new Error(`${to} returned ${response.status} ${response.body}`);
    }
    return JSON.parse(response.body);
  };

  await post('/api/v1/auth/verify', { password: testbed.tenants[tenant]?.admin.password });
  const program = { Name: 'Bench', Role: 'Administrator', Scope: 'All' };
  const { Id } = await post('/api/v1/Programs', program);

  return String((await post(`/api/v1/Programs/${Id}/keys`, {})).Key);
}
