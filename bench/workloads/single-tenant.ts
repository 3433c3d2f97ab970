import { call } from '../call.ts';
import { type Bench, compete } from '../measure.ts';
import type { Plan } from '../plan.ts';
import { limitAndCeilings, startPeer, startServer, type Target } from '../targets.ts';
import { loginRequest } from '../tokens.ts';
import { type Figure, ratios, type Work, withTargets } from '../workload.ts';

const connections = 32;
const loginConnections = 8;

/**
 * What the limit, the peer and the service can all do, each with one tenant; and for what is read, how much bare node:http
 * and bare Koa send in the same time.
 */
export const singleTenantWorks: Work[] = [
  work('read', 'a single row by its id', reading('/api/v1/EntityStatus/1'), {
    aims: { limit: 1, peer: 1.5 },
    withCeilings: true,
  }),
  work('list3', 'a list of 3', reading('/api/v1/EntityStatus', 3)),
  work('list250', 'a list of 250', reading('/api/v1/UnitsOfMeasure', 250), {
    aims: { limit: 15, peer: 20 },
    withCeilings: true,
  }),
  work('list304', 'the list of 250 that the client has already (304; the limit sends it)', unchanged, {
    aims: { limit: 16 },
    withCeilings: true,
  }),
  work('create', 'create a row with its audit entry (the limit: without)', creating, { aims: { limit: 0.4 } }),
  work('login', 'log in, each time one of 10 people', loggingIn),
];

type MakePlan = (bench: Bench, target: Target) => Plan | Promise<Plan>;

interface Extras {
  /** Ratios of the service to them. */
  aims?: { limit?: number; peer?: number };
  withCeilings?: boolean;
}

function work(name: string, title: string, makePlan: MakePlan, { aims = {}, withCeilings = false }: Extras = {}): Work {
  const run: Work['run'] = bench => {
    const { stage } = bench;
    const [limit, ...ceilings] = limitAndCeilings(stage);
    const starts = [limit, () => startPeer(stage), () => startServer(stage), ...(withCeilings ? ceilings : [])];
    return withTargets(starts, async (...targets) => {
      const contestants = targets.map(target => ({
        name: target.name,
        target,
        tenants: [0],
        plan: () => makePlan(bench, target),
      }));
      const rows = await compete(bench, name, contestants);
      const figures = Object.entries(aims).map(
        ([other, atLeast]): Figure => ({
          text: `${title}: service / ${other}`,
          values: ratios(rows, 'service', other),
          aim: { atLeast },
        }),
      );
      if (withCeilings)
        figures.push(
          { text: `${title}: bare node:http / limit`, values: ratios(rows, 'ceiling', 'limit') },
          { text: `${title}: bare Koa with its router / limit`, values: ratios(rows, 'koa', 'limit') },
        );
      return { rows, figures, notes: [] };
    });
  };
  return { name, title, run };
}

function reading(path: string, records?: number): MakePlan {
  return ({ tokens }, target) => ({
    requests: [{ method: 'GET', path, headers: tokens.of(target, 0) }],
    connections,
    expect: { status: 200, ...(records === undefined ? {} : { records }) },
  });
}

/** Asks with the tag of the present answer; who knows no tags answers in full. */
async function unchanged({ tokens }: Bench, target: Target): Promise<Plan> {
  const request = { method: 'GET', path: '/api/v1/UnitsOfMeasure', headers: tokens.of(target, 0) } as const;
  const { etag } = (await call(target.url, request)).headers;
  if (!etag && target.name !== 'limit') throw new Error(`${target.name} sends no ETag`);
  if (!etag) return { requests: [request], connections, expect: { status: 200, records: 250 } };
  const headers = { ...request.headers, 'If-None-Match': etag };
  return { requests: [{ ...request, headers }], connections, expect: { status: 304 } };
}

function creating({ tokens }: Bench, target: Target): Plan {
  const headers = { ...tokens.of(target, 0), 'Content-Type': 'application/json' };
  const body = JSON.stringify({ Name: 'Shipped', Weighting: 30 });
  const path = '/api/v1/OrderStatuses';
  return { requests: [{ method: 'POST', path, headers, body }], connections, expect: { status: 201 } };
}

function loggingIn({ stage }: Bench, target: Target): Plan {
  return { requests: loginRequests(stage, target), connections: loginConnections, expect: { status: 200 } };
}

/** People whom nobody else is logged in as: a login may end their older sessions. */
export function loginRequests({ tenants, people }: Bench['stage'], target: Target): Plan['requests'] {
  if (target.name !== 'service') return people.map(person => loginRequest(person));
  return tenants.flatMap(({ guid, member }) => (member ? [loginRequest(member, guid)] : []));
}
