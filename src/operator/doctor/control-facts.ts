import type pg from 'pg';
import { Server, Tenant } from '../../control/fleet-entities.ts';
import type { Installation } from '../../installation.ts';
import { lockKey, lockSpaces } from '../../postgres/advisory-locks.ts';

/** The contents of the control database at one moment. */
export interface ControlFacts {
  servers: Server[];
  tenants: Tenant[];
  /** Numbers that a warm database may have: those of the pool, and those of tenants that may have claimed one. */
  warmNumbers: Set<number>;
  /** Numbers of the warm databases that are recorded as ready, by the id of the server. */
  readyWarmNumbers: Map<number, number[]>;
  /** Ids of the servers that have unfinished warm databases while no process fills their pool. */
  unfinishedPools: Set<number>;
  /** True while a process provisions, migrates or purges the tenant. */
  isBusy(tenant: Tenant): boolean;
}

/** @param client connected to the control database */
export async function readControlFacts({ control }: Installation, client: pg.Client): Promise<ControlFacts> {
  const em = control.em.fork();
  const { rows } = await client.query<{ space: number; key: number }>(
    `select classid::int as space, objid::int as key from pg_locks
      where locktype = 'advisory' and granted
        and database = (select oid from pg_database where datname = current_database())`,
  );
  const locks = new Set(rows.map(({ space, key }) => `${space}:${key}`));
  // A tenant claims a warm database in one transaction. So one statement sees either the unclaimed database or the
  // tenant.
  const { rows: warm } = await client.query<{ id: string; server: number; ready: boolean | null }>(
    `select id, server_id as server, ready_at is not null as ready from warm_databases
      union all select id, server_id, null from tenants where status = 'provisioning'`,
  );
  const ready = Map.groupBy(
    warm.filter(each => each.ready),
    ({ server }) => server,
  );
  return {
    servers: await em.findAll(Server, { orderBy: { id: 'asc' } }),
    tenants: await em.findAll(Tenant, { populate: ['server'], orderBy: { slug: 'asc' } }),
    warmNumbers: new Set(warm.map(({ id }) => Number(id))),
    readyWarmNumbers: new Map([...ready].map(([server, databases]) => [server, databases.map(({ id }) => Number(id))])),
    unfinishedPools: new Set(
      warm
        .filter(({ ready, server }) => ready === false && !locks.has(`${lockSpaces.warm}:${server}`))
        .map(({ server }) => server),
    ),
    isBusy: ({ id, slug }) =>
      locks.has(`${lockSpaces.tenant}:${id}`) || locks.has(`${lockSpaces.slug}:${lockKey(slug)}`),
  };
}
