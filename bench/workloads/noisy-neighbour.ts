import { type BenchContext, type CaseResult, measureCases } from '../measure.ts';
import type { Plan } from '../plan.ts';
import { baselineStarters, startServer, type Target, withTargets } from '../targets.ts';
import { type Figure, ratios, samplesOf, type Workload } from '../workload.ts';
import { loginRequests } from './single-tenant.ts';

const path = '/api/v1/EntityStatus/1';
const [quietTenant, floodingTenant] = [0, 1];
const quiet = { connections: 4, pauseMs: 10 };
const floodConnections = 200;
const loginConnections = 4;
/**
 * The quiet tenant has a server of its own, so that only the load of the machine affects it.
 */
const floodElsewhere = 'bare-http, service flooded';

/**
 * A tenant with few requests, alone and while another tenant sends requests over 200
 * connections without pause.
 */
export const floodWorkloads: Workload[] = [
  floodWorkload('flood', 'both bypass the cache', { 'Cache-Control': 'no-cache' }),
  floodWorkload('flood-cached', 'both read cached responses', {}),
];

function reading(
  { tokens }: BenchContext,
  target: Target,
  tenant: number,
  headers: Record<string, string>,
): Plan {
  const request = {
    method: 'GET',
    path,
    headers: { ...tokens.headersFor(target, tenant), ...headers },
  } as const;
  return { requests: [request], connections: floodConnections, expect: { status: 200 } };
}

function floodWorkload(name: string, mode: string, headers: Record<string, string>): Workload {
  const title = `p99 of a quiet tenant while another floods (200 connections; ${mode})`;

  const run: Workload['run'] = bench => {
    const { testbed } = bench;
    const { rawPg, bareHttp } = baselineStarters(testbed);

    // raw-pg and bare-http have one tenant and no fair scheduling: they show the effect of the
    // machine on any server.
    return withTargets([rawPg, bareHttp, () => startServer(testbed)], async (...targets) => {
      const [, , service] = targets;
      const flood = (target: Target) => ({
        target,
        plan: () => reading(bench, target, floodingTenant, headers),
      });

      const cases = targets.flatMap(target => {
        const common = {
          target,
          tenants: [quietTenant, floodingTenant],
          plan: () => ({ ...reading(bench, target, quietTenant, headers), ...quiet }),
        };

        return [
          { ...common, name: `${target.name}, alone` },
          { ...common, name: `${target.name}, flooded`, background: flood(target) },
          ...(target.name === 'bare-http'
            ? [{ ...common, name: floodElsewhere, background: flood(service) }]
            : []),
        ];
      });

      const results = await measureCases(bench, name, cases);
      const slowdown = (server: string, flooded = `${server}, flooded`): number[] =>
        ratios(results, flooded, `${server}, alone`, 'p99');

      const figures: Figure[] = [
        {
          text: `${title}: its rise, service / bare-http`,
          values: quotients(rises(results, 'service'), rises(results, 'bare-http')),
          aim: { atMost: 2 },
        },
        {
          text: `${title}: answers of the flood within its rise`,
          values: answersWithin(rises(results, 'service'), results, 'service, flooded'),
          aim: { atMost: 40 },
        },
        { text: `${title}: service, flooded / alone`, values: slowdown('service') },
        { text: `${title}: raw-pg, flooded / alone`, values: slowdown('raw-pg') },
        { text: `${title}: bare-http, flooded / alone`, values: slowdown('bare-http') },
        {
          text: `${title}: ${floodElsewhere} / alone`,
          values: slowdown('bare-http', floodElsewhere),
        },
      ];

      return { results, figures, notes: results.flatMap(backgroundNotes) };
    });
  };

  return { name, title, run };
}

/** Returns by how many ms the flood raises the p99 of the quiet tenant, for each round. */
function rises(results: CaseResult[], server: string): number[] {
  const alone = samplesOf(results, `${server}, alone`);
  return samplesOf(results, `${server}, flooded`).map(
    ({ p99 }, round) => p99 - (alone[round]?.p99 ?? Number.NaN),
  );
}

/** Returns the number of answers of the flood in a time of each round, in ms. */
function answersWithin(times: number[], results: CaseResult[], flooded: string): number[] {
  const { background = [] } = results.find(({ name }) => name === flooded) ?? {};
  return times.map((ms, round) => {
    const { requests = Number.NaN, seconds = Number.NaN } = background[round] ?? {};
    return (ms / 1_000) * (requests / seconds);
  });
}

function quotients(above: number[], below: number[]): number[] {
  return above.map((value, round) => value / (below[round] ?? Number.NaN));
}

const hashingTitle = 'throughput of reads during constant password hashing';

/** Single reads, alone and while four connections log in without pause. */
export const readsDuringLogins: Workload = {
  name: 'hashing',
  title: hashingTitle,
  run: bench => {
    const { testbed } = bench;
    const starters = baselineStarters(testbed);
    const start = () => startServer(testbed);

    return withTargets(
      [starters.rawPg, starters.bareHttp, start],
      async (_rawPg, bareHttp, service) => {
        const logins = (): Plan => ({
          requests: loginRequests(testbed, service),
          connections: loginConnections,
          expect: { status: 200 },
        });

        const cases = [bareHttp, service].flatMap(target => {
          const plan = (): Plan => ({
            ...reading(bench, target, quietTenant, {}),
            connections: 32,
          });
          const common = { target, tenants: [quietTenant], plan };

          return [
            { ...common, name: `${target.name}, alone` },
            {
              ...common,
              name: `${target.name}, during logins`,
              background: { target: service, plan: logins },
            },
          ];
        });

        const results = await measureCases(bench, 'hashing', cases);
        const remaining = (server: string): number[] =>
          ratios(results, `${server}, during logins`, `${server}, alone`);

        const figures: Figure[] = [
          {
            text: `${hashingTitle}: service, during logins / alone`,
            values: remaining('service'),
            aim: { atLeast: 0.6 },
          },
          {
            text: `${hashingTitle}: bare-http, during logins at the service / alone`,
            values: remaining('bare-http'),
          },
        ];

        return { results, figures, notes: results.flatMap(backgroundNotes) };
      },
    );
  },
};

/** Describes the background load of a case. */
function backgroundNotes({ name, background = [] }: CaseResult): string[] {
  if (background.length === 0) return [];
  const rates = background
    .map(({ requests, seconds }) => `${Math.round(requests / seconds)}/s`)
    .join(', ');
  const errors = background
    .map(({ statusErrors, socketErrors }) => statusErrors + socketErrors)
    .join(', ');
  return [`${name}: background load by round: ${rates}, errors ${errors}`];
}
