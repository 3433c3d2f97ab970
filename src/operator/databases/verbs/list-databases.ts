import type { ControlStatements } from '../../../control/installation.ts';
import { lockSpaces } from '../../../lib/postgres/advisory-locks.ts';
import { isoTime } from '../../../lib/postgres/iso-time.ts';
import { doneSql, guidOfFinding, isDoneSql, lastReportSql } from '../../registry/done-since.ts';
import { readTenant } from '../../registry/read-tenants.ts';
import type { DatabaseState, KeptBy } from '../store/database-store.ts';

/** A database of a tenant, as the command line shows it. */
export interface ListedDatabase {
  slug: string;
  database: string;
  server: string;
  state: DatabaseState;
  /** The source that the database was filled from, in words. */
  origin: string;
  bytes: number | null;
  createdAt: string;
  /** The moment until which the database is kept; null: no time is set. */
  keepUntil: string | null;
  /** The reason why the database is there, or the remedy. */
  why: string;
  error: string | null;
}

/** A database with the facts that decide its next step. */
export interface StoredDatabase extends Omit<ListedDatabase, 'why'> {
  keptBy: KeptBy | null;
  /** True when the time for which the database is kept has passed. */
  isOverdue: boolean;
  /** True while a command works on the tenant. */
  isBusy: boolean;
  fence: 'announced' | 'closed' | null;
  /**
   * The finding of the last report of doctor, with the remedy; null: there is none, or its
   * remedy was carried out since.
   */
  finding: string | null;
  /** True until the tenant is served for the first time. */
  isNew: boolean;
  isPurging: boolean;
}

/** The checks of doctor that say that a database cannot be used. */
const unusable = `('missing_database', 'renamed_database', 'half_dropped_database', 'closed_database')`;

const listed = `
  with last as (${lastReportSql}), done as (${doneSql}),
  unusable as materialized (
    select ${guidOfFinding('f')} as of_tenant, f ->> 'problem' as problem, f ->> 'remedy' as remedy
      from last, jsonb_array_elements(report -> 'findings') f
     where f ->> 'check' in ${unusable} and not (f ->> 'fixed')::boolean and not ${isDoneSql('f')})
  select slug, d.database_name as database, s.name as server, d.state, origin, bytes::float8, error,
         ${isoTime('d.created_at')} as "createdAt", ${isoTime('keep_until')} as "keepUntil", kept_by as "keptBy",
         coalesce(keep_until < now(), false) as "isOverdue",
         exists (select from pg_locks where locktype = 'advisory' and granted and classid = ${lockSpaces.tenant} and objid = t.id::oid
                   and database = (select oid from pg_database where datname = current_database())) as "isBusy",
         (select case when closed then 'closed' else 'announced' end from tenant_fences where tenant_guid = guid) as fence,
         (select concat(problem, ': ', remedy) from unusable
           where of_tenant = guid and strpos(problem, d.database_name) > 0 limit 1) as finding,
         t.status = 'provisioning' as "isNew", purging_at is not null as "isPurging"
    from tenant_databases d join tenants t on t.id = tenant_id join servers s on s.id = d.server_id
   where d.state <> 'gone'`;

/**
 * Returns the databases of a tenant; without a slug, of all tenants those that are not simply
 * current: reserved, filled, kept or condemned, and the current one of a tenant behind a fence.
 * @throws {OperatorError} when there is no tenant with that slug: it may be mistyped
 */
export async function readStored(
  { statements }: ControlStatements,
  slug: string | undefined,
): Promise<StoredDatabase[]> {
  if (slug === undefined) {
    const { rows } = await statements.query<StoredDatabase>(
      `${listed} and (d.state <> 'current' or exists (select from tenant_fences where tenant_guid = guid))
        order by slug, d.id`,
    );

    return rows;
  }
  const { id } = await readTenant({ statements }, slug);
  const { rows } = await statements.query<StoredDatabase>(
    `${listed} and tenant_id = $1 order by d.id`,
    [id],
  );

  return rows;
}

/** Returns the databases of `readStored`, each with its next step. */
export async function listDatabases(
  control: ControlStatements,
  slug: string | undefined,
): Promise<ListedDatabase[]> {
  return (await readStored(control, slug)).map(stored => {
    const { keptBy: _, isOverdue, isBusy, fence, finding, isNew, isPurging, ...row } = stored;
    return { ...row, why: explain(stored) };
  });
}

/**
 * True for a database that is left over: reserved or condemned, or kept beyond its time. Not for
 * a new one, which a run may be filling, nor for one that a purge removes.
 */
export function isLeftover({ state, isOverdue, isNew, isPurging }: StoredDatabase): boolean {
  return !isNew && !isPurging && (state === 'reserved' || state === 'condemned' || isOverdue);
}

/** The reason why the current database of a tenant is there. */
export const served = 'serves the tenant';
const prune = 'bin/backoffice databases prune';

function explain({
  slug,
  state,
  keptBy,
  isOverdue,
  isBusy,
  fence,
  finding,
  isNew,
  isPurging,
}: StoredDatabase): string {
  const waiting = fence === 'closed' ? '; its requests wait' : '';
  if (isBusy && state !== 'filled' && state !== 'kept') return `a command works on it${waiting}`;

  const purge = `bin/backoffice purge ${slug}`;
  const remedy = isPurging
    ? purge
    : isNew
      ? `${purge}, or the same command again`
      : `${prune} ${slug}`;

  switch (state) {
    case 'reserved':
      return `a command has ended before it was complete: ${remedy}`;
    case 'filled':
      return `restored: bin/backoffice restore diff ${slug}, then bin/backoffice restore swap ${slug}`;
    case 'current':
      return fence
        ? `a command has ended behind the fence${waiting}: ${prune} ${slug}`
        : (finding ?? served);
    case 'kept':
      if (isOverdue) return `its time has passed: ${prune}`;
      if (keptBy === 'move') return `before the last move: bin/backoffice move ${slug} --back`;
      return keptBy === 'swap'
        ? `before the last swap: bin/backoffice restore back ${slug}`
        : `replaced again: bin/backoffice restore swap ${slug}`;
    default:
      return `will be dropped: ${remedy}`;
  }
}
