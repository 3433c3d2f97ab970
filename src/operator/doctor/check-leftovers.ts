import type { CheckedTenant, ControlFacts, RecordedDatabase } from './control-facts.ts';
import { type Finding, toFinding } from './finding.ts';

/** Reports databases that are neither current nor wanted, and tenants behind a fence, that no process works on. */
export function checkLeftovers({ databases, fences, tenants, busyPools, isBusy }: ControlFacts): Finding[] {
  const byId = new Map(tenants.map(tenant => [tenant.id, tenant]));
  return databases.flatMap(database => {
    const tenant = database.tenantId === null ? undefined : byId.get(database.tenantId);
    if (!tenant) return busyPools.has(database.serverId) ? [] : ofPool(database);
    if (tenant.isPurging || tenant.status === 'provisioning' || isBusy(tenant)) return [];
    if (database.state === 'current') return ofFence(database, tenant, fences.get(tenant.guid));
    return isLeftover(database) ? [leftover(database, tenant.slug)] : [];
  });
}

function isLeftover({ state, isOverdue }: RecordedDatabase): boolean {
  return state === 'reserved' || state === 'condemned' || isOverdue;
}

const whys: Readonly<Record<string, string>> = {
  reserved: 'is not complete, and no process continues',
  condemned: 'is to be dropped, and no process does it',
};

function leftover({ server, database, state }: RecordedDatabase, slug: string): Finding {
  return toFinding(server, {
    check: 'leftover_database',
    tenant: slug,
    problem: `database ${database} of ${slug} ${whys[state] ?? 'is still there, and its time has passed'}`,
    remedy: `Drop it: npx backoffice databases prune ${slug}`,
  });
}

function ofFence({ server }: RecordedDatabase, { slug }: CheckedTenant, isClosed: boolean | undefined): Finding[] {
  if (isClosed === undefined) return [];
  const waiting = isClosed ? ', and its requests get 503 meanwhile' : '';
  return [
    toFinding(server, {
      check: 'unfinished_switch',
      tenant: slug,
      problem: `a move or a swap of ${slug} was begun, and no process continues${waiting}`,
      remedy: `Run that command again. Or keep the database that it has: npx backoffice databases prune ${slug}`,
    }),
  ];
}

function ofPool({ server, database, state }: RecordedDatabase): Finding[] {
  if (state === 'filled') return [];
  return [
    toFinding(server, {
      check: 'leftover_database',
      problem: `warm database ${database} ${whys[state]}`,
      remedy: 'Replace it: npx backoffice pool fill',
    }),
  ];
}
