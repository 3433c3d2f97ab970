import { prepare } from '../call.ts';
import { type BenchContext, type CaseResult, measureCases } from '../measure.ts';
import type { Plan } from '../plan.ts';
import {
  baselineStarters,
  startAuditedPg,
  startFastify,
  startServer,
  type Target,
  withTargets,
} from '../targets.ts';
import { loginRequest } from '../tokens.ts';
import { type Figure, ratios, type Workload } from '../workload.ts';

const connections = 32;
const loginConnections = 8;

/** Reads that no process caches: each of them reads the tenant's database. */
const uncached = [
  ['activities', 'the newest 20 of 1,000 activities', '/api/v1/Activity', 20, 0.9],
  ['activity', 'one activity', '/api/v1/Activity/500', undefined, 0.9],
  ['audit', 'the newest 20 of 1,000 audit entries', '/api/v1/AuditLog', 20, 1],
  ['entity', 'one entity', '/api/v1/Entities/50', undefined, 0.85],
] as const;
const uncachedReads = uncached.map(([name, title, path, records, aim]) =>
  workload(name, title, reading(path, records), { aim }),
);

/**
 * Operations that raw-pg, fastify and the service all support, with one tenant each; for most
 * reads also what bare-http and bare-koa can send.
 */
export const singleTenantWorkloads: Workload[] = [
  workload('read', 'a single record by its id', reading('/api/v1/EntityStatus/1'), {
    maxCpuOverKoa: 1.1,
  }),
  workload('list250', 'a list of 250', reading('/api/v1/UnitsOfMeasure', 250), {
    maxCpuOverKoa: 1.35,
  }),
  workload('list304', 'the unchanged list of 250 (304; raw-pg sends the list)', revalidating, {
    maxCpuOverKoa: 1.35,
  }),
  ...uncachedReads,
  workload('create', 'creating a record with its audit entry (raw-pg: without)', creating, {
    aim: 0.6,
    auditedAim: 0.85,
  }),
  workload('login', 'login, in turn by 10 users, while nobody else is served', loggingIn, {
    aim: 0.8,
  }),
];

type MakePlan = (bench: BenchContext, target: Target) => Plan | Promise<Plan>;

interface Extras {
  /** Minimum throughput of the service, as a ratio to raw-pg. */
  aim?: number;
  /**
   * Minimum throughput of the service, as a ratio to raw-pg-audited, which is measured, too: it
   * writes the same audit entry.
   */
  auditedAim?: number;
  /**
   * Maximum CPU of the service for a cached response, as a ratio to bare-koa, which is measured,
   * too, and bare-http: both send the same bytes.
   */
  maxCpuOverKoa?: number;
}

function workload(
  name: string,
  title: string,
  makePlan: MakePlan,
  { aim, auditedAim, maxCpuOverKoa }: Extras,
): Workload {
  const run: Workload['run'] = bench => {
    const { testbed } = bench;
    const { rawPg, bareHttp, bareKoa } = baselineStarters(testbed);
    const senders = maxCpuOverKoa === undefined ? [] : [bareHttp, bareKoa];
    const audited = auditedAim === undefined ? [] : [() => startAuditedPg(testbed)];
    const starts = [
      rawPg,
      ...audited,
      () => startFastify(testbed),
      () => startServer(testbed),
      ...senders,
    ];

    return withTargets(starts, async (...targets) => {
      const cases = targets.map(target => ({
        name: target.name,
        target,
        tenants: [0],
        plan: () => makePlan(bench, target),
      }));

      const results = await measureCases(bench, name, cases);
      const aims = { 'raw-pg': aim, 'raw-pg-audited': auditedAim };
      const figures = figuresOf(title, results, targets, aims, maxCpuOverKoa);
      if (maxCpuOverKoa !== undefined) await requireSameHeaders(bench, targets, makePlan);

      return { results, figures, notes: [] };
    });
  };

  return { name, title, run };
}

/**
 * Returns the ratios of the service to each other server that was measured.
 * @param aims the minimum ratios, by the name of the other server
 * @param maxCpuOverKoa the maximum ratio of the CPU to that of bare-koa; undefined if bare-koa
 *   was not measured
 */
function figuresOf(
  title: string,
  results: CaseResult[],
  targets: readonly Target[],
  aims: Readonly<Record<string, number | undefined>>,
  maxCpuOverKoa: number | undefined,
): Figure[] {
  const others = targets.map(target => target.name).filter(other => other !== 'service');
  const figures = others.map((other): Figure => {
    const aim = aims[other];
    return {
      text: `${title}: service / ${other}`,
      values: ratios(results, 'service', other),
      ...(aim === undefined ? {} : { aim: { atLeast: aim } }),
    };
  });
  if (maxCpuOverKoa === undefined) return figures;

  return [
    ...figures,
    {
      text: `${title}: CPU of a request, service / bare-koa`,
      values: ratios(results, 'service', 'bare-koa', 'cpuServer'),
      aim: { atMost: maxCpuOverKoa },
    },
  ];
}

/**
 * Checks that bare-koa sends the headers that the service sends.
 * @throws {Error} with those that only one of them sends
 */
async function requireSameHeaders(
  bench: BenchContext,
  targets: readonly Target[],
  makePlan: MakePlan,
): Promise<void> {
  const headersOf = async (name: string): Promise<string[]> => {
    const target = targets.find(each => each.name === name);
    if (!target) throw new Error(`${name} was not measured`);

    const { requests } = await makePlan(bench, target);
    const [request] = requests;
    if (!request) throw new Error(`the plan of ${name} has no request`);
    return Object.keys((await prepare(target.url, request)).headers);
  };

  const sent = [await headersOf('service'), await headersOf('bare-koa')];
  const different = sent.flat().filter(name => !sent.every(names => names.includes(name)));
  if (different.length > 0) {
    throw new Error(`service and bare-koa differ in the headers ${different.join(', ')}`);
  }
}

function reading(path: string, records?: number): MakePlan {
  return ({ tokens }, target) => ({
    requests: [{ method: 'GET', path, headers: tokens.headersFor(target, 0) }],
    connections,
    expect: { status: 200, ...(records === undefined ? {} : { records }) },
  });
}

/** Requests the list with its current ETag; raw-pg has none and sends the full list. */
async function revalidating({ tokens }: BenchContext, target: Target): Promise<Plan> {
  const request = {
    method: 'GET',
    path: '/api/v1/UnitsOfMeasure',
    headers: tokens.headersFor(target, 0),
  } as const;
  const { etag } = (await prepare(target.url, request)).headers;
  if (!etag && target.name !== 'raw-pg') throw new Error(`${target.name} sends no ETag`);
  if (!etag) return { requests: [request], connections, expect: { status: 200, records: 250 } };
  const headers = { ...request.headers, 'If-None-Match': etag };
  return { requests: [{ ...request, headers }], connections, expect: { status: 304 } };
}

function creating({ tokens }: BenchContext, target: Target): Plan {
  const headers = { ...tokens.headersFor(target, 0), 'Content-Type': 'application/json' };
  const body = JSON.stringify({ Name: 'Shipped', Weighting: 30 });
  const path = '/api/v1/OrderStatuses';
  return {
    requests: [{ method: 'POST', path, headers, body }],
    connections,
    expect: { status: 201 },
  };
}

function loggingIn({ testbed }: BenchContext, target: Target): Plan {
  return {
    requests: loginRequests(testbed, target),
    connections: loginConnections,
    expect: { status: 200 },
  };
}

/**
 * Returns logins of users that no other plan uses, because a login may revoke older sessions of
 * the same user.
 */
export function loginRequests(
  { tenants, users }: BenchContext['testbed'],
  target: Target,
): Plan['requests'] {
  if (target.name !== 'service') return users.map(user => loginRequest(user));
  return tenants.flatMap(({ guid, loginUser }) =>
    loginUser ? [loginRequest(loginUser, guid)] : [],
  );
}
