import type pg from 'pg';
import { Server, SigningKey, Tenant } from '../../control/fleet-entities.ts';
import { owners } from '../../control/secret-box.ts';
import type { Installation } from '../../installation.ts';
import { lockKey, lockSpaces } from '../../postgres/advisory-locks.ts';
import type { Finding } from './finding.ts';

/** The control database at one moment. */
export interface ControlFacts {
  servers: Server[];
  tenants: Tenant[];
  /** Numbers that a warm database can have: of those in the books, and of tenants that may have claimed one. */
  warm: Set<number>;
  /** Warm databases that are said to be ready, by server. */
  ready: Map<number, number[]>;
  /** Servers with warm databases that are half made, and nobody is at it. */
  unfinished: Set<number>;
  /** Somebody works on the tenant at this moment: provisions, migrates, purges it. */
  underWork(tenant: Tenant): boolean;
}

/** @param client on the control database */
export async function readControlFacts({ control }: Installation, client: pg.Client): Promise<ControlFacts> {
  const em = control.em.fork();
  const { rows } = await client.query<{ space: number; key: number }>(
    `select classid::int as space, objid::int as key from pg_locks
      where locktype = 'advisory' and granted and database = (select oid from pg_database where datname = current_database())`,
  );
  const locks = new Set(rows.map(({ space, key }) => `${space}:${key}`));
  // One statement sees a warm database before it is claimed, or the tenant after.
  const { rows: claims } = await client.query<{ id: string; server: number; ready: boolean | null }>(
    `select id, server_id as server, ready_at is not null as ready from warm_databases
      union all select id, server_id, null from tenants where status = 'provisioning'`,
  );
  const ready = Map.groupBy(
    claims.filter(claim => claim.ready),
    ({ server }) => server,
  );
  return {
    servers: await em.findAll(Server, { orderBy: { id: 'asc' } }),
    tenants: await em.findAll(Tenant, { populate: ['server'], orderBy: { slug: 'asc' } }),
    warm: new Set(claims.map(({ id }) => Number(id))),
    ready: new Map([...ready].map(([server, all]) => [server, all.map(({ id }) => Number(id))])),
    unfinished: new Set(
      claims
        .filter(({ ready, server }) => ready === false && !locks.has(`${lockSpaces.warm}:${server}`))
        .map(({ server }) => server),
    ),
    underWork: ({ id, slug }) =>
      locks.has(`${lockSpaces.tenant}:${id}`) || locks.has(`${lockSpaces.slug}:${lockKey(slug)}`),
  };
}

const minKeyBytes = 64; // RFC 7518 §3.2: a key of the size of the hash, or larger

/** What is wrong in the control database itself: provisioning that nobody goes on with, keys and secrets. */
export async function checkControl({ control, secrets }: Installation, facts: ControlFacts): Promise<Finding[]> {
  const findings: Finding[] = [];
  const opens = (sealed: Uint8Array, owner: string, least = 1): boolean => {
    try {
      return secrets.open(sealed, owner).length >= least;
    } catch {
      return false;
    }
  };
  for (const { name, adminUrl } of facts.servers) {
    if (adminUrl && !opens(adminUrl, owners.serverUrl(name)))
      findings.push({
        check: 'secret_does_not_open',
        server: name,
        tenant: null,
        problem: `the address of ${name} does not open under this master key`,
        remedy: 'run with the master key that it was added under',
      });
  }
  const keys = Map.groupBy(
    await control.em.fork().find(SigningKey, { status: { $ne: 'disabled' } }),
    key => key.tenant.id,
  );
  for (const tenant of facts.tenants) {
    const { slug, guid, status, server } = tenant;
    const add = (check: Finding['check'], problem: string, remedy: string) =>
      findings.push({ check, server: server.name, tenant: slug, problem, remedy });
    const own = keys.get(tenant.id) ?? [];
    if (status === 'provisioning' && !facts.underWork(tenant))
      add(
        'stuck_provisioning',
        `${slug} is half made, and nobody is at it`,
        `provision ${slug} again, which completes it, or purge it`,
      );
    if (!opens(tenant.rolePassword, owners.rolePassword(guid)))
      add(
        'secret_does_not_open',
        `the password of ${tenant.roleName} does not open`,
        'run with the master key that it was sealed under, or restore the row of the tenant',
      );
    for (const { kid, secret } of own)
      if (!opens(secret, owners.signingKey(guid, kid), minKeyBytes))
        add('secret_does_not_open', `the signing key ${kid} does not open`, `key disable ${slug} ${kid}`);
    if (!own.some(key => key.status === 'active'))
      add('missing_key', `${slug} has no active signing key: nobody can log in`, `key rotate ${slug}`);
  }
  return findings;
}
