import { type Bench, compete } from '../measure.ts';
import type { Plan } from '../plan.ts';
import { limitAndCeiling, startService, type Target } from '../targets.ts';
import { type Figure, ratios, type Work, withTargets } from '../work.ts';
import { loginRequests } from './single-tenant.ts';

const path = '/api/v1/EntityStatus/1';
const [quietTenant, floodingTenant] = [0, 1];
const quiet = { connections: 4, pauseMs: 10 };
const floodConnections = 200;
const loginConnections = 4;

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
    // They have one tenant and no fairness: what the machine does to the quiet one, whoever answers.
    return withTargets([...limitAndCeiling(stage), () => startService(stage)], async (...targets) => {
      const contestants = targets.flatMap(target => {
        const common = {
          target,
          tenants: [quietTenant, floodingTenant],
          plan: () => ({ ...reading(bench, target, quietTenant, headers), ...quiet }),
        };
        const beside = () => reading(bench, target, floodingTenant, headers);
        return [
          { ...common, name: `${target.name}, alone` },
          { ...common, name: `${target.name}, flooded`, beside },
        ];
      });
      const rows = await compete(bench, name, contestants);
      const floods = rows.flatMap(({ name: who, beside = [] }) =>
        beside.length === 0
          ? []
          : [
              `${who}: the flood was answered ${beside.map(each => `${Math.round(each.requests / each.seconds)}/s`).join(', ')} with ${beside.map(each => each.statusErrors + each.socketErrors).join(', ')} errors (by round).`,
            ],
      );
      const against = (who: string): number[] => ratios(rows, `${who}, flooded`, `${who}, alone`, 'p99');
      const figures: Figure[] = [
        { text: `${title}: service, flooded / alone`, values: against('service'), aim: { atMost: 2 } },
        { text: `${title}: limit, flooded / alone`, values: against('limit') },
        { text: `${title}: bare node:http, flooded / alone`, values: against('ceiling') },
      ];
      return { rows, figures, notes: floods };
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
    return withTargets([() => startService(stage)], async service => {
      const plan = (): Plan => ({ ...reading(bench, service, quietTenant, {}), connections: 32 });
      const beside = (): Plan => ({
        requests: loginRequests(stage, service),
        connections: loginConnections,
        expect: { status: 200 },
      });
      const common = { target: service, tenants: [quietTenant], plan };
      const [alone, hashing] = ['service, alone', 'service, with logins beside'] as const;
      const rows = await compete(bench, 'hashing', [
        { ...common, name: alone },
        { ...common, name: hashing, beside },
      ]);
      const logins = rows[1]?.beside?.map(
        each => `${(each.requests / each.seconds).toFixed(0)}/s with ${each.statusErrors + each.socketErrors} errors`,
      );
      const values = ratios(rows, hashing, alone);
      const figures = [{ text: `${hashingTitle}: beside logins / alone`, values, aim: { atLeast: 0.6 } }];
      return { rows, figures, notes: [`Logins beside: ${logins?.join(', ')} (by round).`] };
    });
  },
};
