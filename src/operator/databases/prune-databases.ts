import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../operator-error.ts';
import type { Statements } from '../../postgres/statements.ts';
import { dropCondemned } from './database-run.ts';
import type { DatabaseState } from './database-store.ts';
import { inTransaction } from './in-transaction.ts';
import { retreatIfFenced } from './retreat-tenant.ts';
import type { RunObservers } from './run-databases.ts';
import { TenantBusyError, withTenant } from './with-tenant.ts';

/**
 * Which databases are dropped, beside those that are condemned and those that a killed run has left: `overdue`, whose
 * time has passed; `moved`, also those that a move has replaced; or one by its name.
 */
export type PruneScope = 'overdue' | 'moved' | 'leftovers' | { readonly database: string };

/** A database that is dropped. */
export interface PrunedDatabase {
  slug: string;
  server: string;
  database: string;
  state: DatabaseState;
}

interface Prunable extends PrunedDatabase {
  id: string;
}

/** SQL of what a scope drops; its parameters are a slug or null, whether moved ones are dropped, overdue ones, a name. */
const prunable = `
  select d.id, slug, s.name as server, d.database_name as database, d.state
    from tenant_databases d join tenants t on t.id = tenant_id join servers s on s.id = d.server_id
   where (?::text is null or slug = ?) and status <> 'provisioning' and purging_at is null
     and (d.state in ('reserved', 'condemned')
       or d.state = 'kept' and kept_by = 'move' and ?::boolean
       or d.state in ('filled', 'kept') and keep_until < now() and ?::boolean
       or d.state in ('filled', 'kept') and d.database_name = ?)
   order by slug, d.id`;

/** Returns what `pruneDatabases` drops, and changes nothing. */
export async function findPrunable(
  { statements }: { readonly statements: Statements },
  slug: string | undefined,
  scope: PruneScope,
): Promise<Prunable[]> {
  const name = typeof scope === 'object' ? scope.database : null;
  return statements.execute<Prunable[]>(prunable, [
    slug ?? null,
    slug ?? null,
    String(scope === 'moved'),
    String(scope === 'overdue' || scope === 'moved'),
    name,
  ]);
}

/**
 * Drops databases that tenants do not need any more, and puts tenants back into service whose run has ended behind the
 * fence. A tenant that another command works on is left out, unless it is named.
 * @returns what was dropped
 * @throws {OperatorError} when the named tenant is worked on; when a server cannot be used, after the other tenants
 */
export async function pruneDatabases(
  installation: Installation,
  slug: string | undefined,
  scope: PruneScope,
  observers: RunObservers = {},
): Promise<PrunedDatabase[]> {
  const pruned: PrunedDatabase[] = [];
  const failures: unknown[] = [];
  for (const each of slug === undefined ? await slugsToPrune(installation) : [slug])
    await pruneTenant(installation, each, scope, observers).then(
      dropped => pruned.push(...dropped),
      error => {
        if (slug !== undefined || !(error instanceof TenantBusyError)) failures.push(error);
      },
    );
  if (slug !== undefined && failures.length > 0) throw failures[0];
  if (failures.length > 0)
    throw new OperatorError(
      `The databases of ${failures.length} tenants could not be dropped: see npx backoffice databases`,
      { cause: failures[0] },
    );
  return pruned;
}

async function slugsToPrune(installation: Installation): Promise<string[]> {
  const fenced = await installation.statements.execute<{ slug: string }[]>(
    'select slug from tenants join tenant_fences on tenant_guid = guid',
    [],
  );
  const found = [...(await findPrunable(installation, undefined, 'overdue')), ...fenced];
  return [...new Set(found.map(({ slug }) => slug))].sort();
}

async function pruneTenant(
  installation: Installation,
  slug: string,
  scope: PruneScope,
  observers: RunObservers,
): Promise<PrunedDatabase[]> {
  return withTenant(installation, slug, async (control, tenant) => {
    await retreatIfFenced({ installation, control, tenant }, observers);
    const found = await findPrunable(installation, slug, scope);
    await inTransaction(control, () =>
      control.query(
        `update tenant_databases set state = 'condemned' where id = any ($1) and state in ('reserved', 'filled', 'kept')`,
        [found.map(({ id }) => id)],
      ),
    );
    await dropCondemned(installation, control, tenant);
    return found.map(({ id: _, ...each }) => each);
  });
}
