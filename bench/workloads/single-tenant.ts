import { prepare } from '../call.ts';
import { type BenchContext, measureCases } from '../measure.ts';
import type { Plan } from '../plan.ts';
import {
  baselineStarters,
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
  ['activities', 'the newest 20 of 1,000 activities', '/api/v1/Activity', 20, 0.8],
  ['activity', 'one activity', '/api/v1/Activity/500', undefined, 0.75],
  ['audit', 'the newest 20 of 1,000 audit entries', '/api/v1/AuditLog', 20, 0.75],
  ['entity', 'one entity', '/api/v1/Entities/50', undefined, 0.75],
] as const;
const uncachedReads = uncached.map(([name, title, path, records, aim]) =>
  workload(name, title, reading(path, records), { aims: { 'raw-pg': aim, fastify: 1.3 } }),
);

/**
 * Operations that raw-pg, fastify and the service all support, with one tenant each; for most
 * reads also what bare-http and bare-koa can send.
 */
export const singleTenantWorkloads: Workload[] = [
  workload('read', 'a single record by its id', reading('/api/v1/EntityStatus/1'), {
    aims: { 'raw-pg': 1, fastify: 1.5 },
    withSenders: true,
  }),
  workload('list250', 'a list of 250', reading('/api/v1/UnitsOfMeasure', 250), {
    aims: { 'raw-pg': 15, fastify: 20, 'bare-koa': 0.85 },
    withSenders: true,
  }),
  workload('list304', 'the unchanged list of 250 (304; raw-pg sends the list)', revalidating, {
    aims: { 'raw-pg': 16 },
    withSenders: true,
  }),
  ...uncachedReads,
  workload('create', 'creating a record with its audit entry (raw-pg: without)', creating, {
    aims: { 'raw-pg': 0.4, fastify: 1.5 },
  }),
  workload('login', 'login, in turn by 10 users', loggingIn),
];

type MakePlan = (bench: BenchContext, target: Target) => Plan | Promise<Plan>;

interface Extras {
  /** Minimum ratios of the service to these servers. */
  aims?: { 'raw-pg'?: number; fastify?: number; 'bare-koa'?: number };
  /** Also measures bare-http and bare-koa. */
  withSenders?: boolean;
}

function workload(
  name: string,
  title: string,
  makePlan: MakePlan,
  { aims = {}, withSenders = false }: Extras = {},
): Workload {
  const run: Workload['run'] = bench => {
    const { testbed } = bench;
    const { rawPg, bareHttp, bareKoa } = baselineStarters(testbed);
    const senders = withSenders ? [bareHttp, bareKoa] : [];
    const starts = [rawPg, () => startFastify(testbed), () => startServer(testbed), ...senders];

    return withTargets(starts, async (...targets) => {
      const cases = targets.map(target => ({
        name: target.name,
        target,
        tenants: [0],
        plan: () => makePlan(bench, target),
      }));

      const results = await measureCases(bench, name, cases);
      const figures = Object.entries(aims).map(
        ([other, atLeast]): Figure => ({
          text: `${title}: service / ${other}`,
          values: ratios(results, 'service', other),
          aim: { atLeast },
        }),
      );
      if (withSenders) {
        figures.push(
          { text: `${title}: bare-http / raw-pg`, values: ratios(results, 'bare-http', 'raw-pg') },
          { text: `${title}: bare-koa / raw-pg`, values: ratios(results, 'bare-koa', 'raw-pg') },
        );
      }

      return { results, figures, notes: [] };
    });
  };

  return { name, title, run };
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
