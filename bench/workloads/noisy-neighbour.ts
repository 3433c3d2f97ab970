import { type Bench, compete, type Row } from '../measure.ts';
import type { Plan } from '../plan.ts';
import { limitAndCeilings, startServer, type Target } from '../targets.ts';
import { type Figure, ratios, type Work, withTargets } from '../workload.ts';
import { loginRequests } from './single-tenant.ts';

const path = '/api/v1/EntityStatus/1';
const [quietTenant, floodingTenant] = [0, 1];
const quiet = { connections: 4, pauseMs: 10 };
const floodConnections = 200;
const loginConnections = 4;
/** What a quiet tenant feels of the flood that has a server for itself: no more than that the machine is busy. */
const elsewhere = 'bare node:http, the service flooded';

/** A tenant that asks now and then, alone and while another one asks with 200 connections as fast as it can. */
export const floodWorks: Work[] = [
  floodWork('flood', 'both read through', { 'Cache-Control': 'no-cache' }),
  floodWork('flood-kept', 'both read what is kept', {}),
];

function reading({ tokens }: Bench, target: Target, tenant: number, headers: Record<string, string>): Plan {
  const request = { method: 'GET', path, headers: { ...tokens.of(target, tenant), ...headers } } as const;
  return { requests: [request], connections: floodConnections, expect: { status: 200 } };
}

function floodWork(name: string, what: string, headers: Record<string, string>): Work {
  const title = `p99 of a quiet tenant while another floods (200 connections; ${what})`;
  const run: Work['run'] = bench => {
    const { stage } = bench;
    const [limit, ceiling] = limitAndCeilings(stage);
    // They have one tenant and no fairness: what the machine does to the quiet one, whoever answers.
    return withTargets([limit, ceiling, () => startServer(stage)], async (...targets) => {
      const [, , service] = targets;
      const flood = (target: Target) => ({ target, plan: () => reading(bench, target, floodingTenant, headers) });
      const contestants = targets.flatMap(target => {
        const common = {
          target,
          tenants: [quietTenant, floodingTenant],
          plan: () => ({ ...reading(bench, target, quietTenant, headers), ...quiet }),
        };
        return [
          { ...common, name: `${target.name}, alone` },
          { ...common, name: `${target.name}, flooded`, beside: flood(target) },
          ...(target.name === 'ceiling' ? [{ ...common, name: elsewhere, beside: flood(service) }] : []),
        ];
      });
      const rows = await compete(bench, name, contestants);
      const against = (who: string, flooded = `${who}, flooded`): number[] =>
        ratios(rows, flooded, `${who}, alone`, 'p99');
      const figures: Figure[] = [
        { text: `${title}: service, flooded / alone`, values: against('service'), aim: { atMost: 2 } },
        { text: `${title}: limit, flooded / alone`, values: against('limit') },
        { text: `${title}: bare node:http, flooded / alone`, values: against('ceiling') },
        { text: `${title}: ${elsewhere} / alone`, values: against('ceiling', elsewhere) },
      ];
      return { rows, figures, notes: rows.flatMap(toldOfBeside) };
    });
  };
  return { name, title, run };
}

const hashingTitle = 'reads kept while passwords are hashed all the time';

/** Single reads, alone and while four connections do nothing but log in. */
export const readsBesideLogins: Work = {
  name: 'hashing',
  title: hashingTitle,
  run: bench => {
    const { stage } = bench;
    const [limit, startCeiling] = limitAndCeilings(stage);
    return withTargets([limit, startCeiling, () => startServer(stage)], async (_limit, ceiling, service) => {
      const logins = (): Plan => ({
        requests: loginRequests(stage, service),
        connections: loginConnections,
        expect: { status: 200 },
      });
      const contestants = [ceiling, service].flatMap(target => {
        const plan = (): Plan => ({ ...reading(bench, target, quietTenant, {}), connections: 32 });
        const common = { target, tenants: [quietTenant], plan };
        return [
          { ...common, name: `${target.name}, alone` },
          { ...common, name: `${target.name}, beside logins`, beside: { target: service, plan: logins } },
        ];
      });
      const rows = await compete(bench, 'hashing', contestants);
      const kept = (who: string): number[] => ratios(rows, `${who}, beside logins`, `${who}, alone`);
      const figures: Figure[] = [
        { text: `${hashingTitle}: beside logins / alone`, values: kept('service'), aim: { atLeast: 0.6 } },
        { text: `${hashingTitle}: bare node:http, beside logins of the service / alone`, values: kept('ceiling') },
      ];
      return { rows, figures, notes: rows.flatMap(toldOfBeside) };
    });
  },
};

/** What became of those that ran beside. */
function toldOfBeside({ name, beside = [] }: Row): string[] {
  if (beside.length === 0) return [];
  const rates = beside.map(({ requests, seconds }) => `${Math.round(requests / seconds)}/s`).join(', ');
  const errors = beside.map(({ statusErrors, socketErrors }) => statusErrors + socketErrors).join(', ');
  return [`${name}: ${rates} were answered beside, with ${errors} errors (by round).`];
}
