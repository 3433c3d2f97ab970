import type pg from 'pg';
import type { Tenant } from '../../../control/fleet-entities.ts';
import { OperatorError } from '../../../operator-error.ts';
import { quoteIdentifier } from '../../../postgres/quote.ts';
import { claimDatabase, guardedChange } from '../../move/tenant-guard.ts';
import { roleComment } from '../../provisioning/role-stamp.ts';
import { becomeMember } from '../../schema/tenant-sessions.ts';

/** The two tenants whose databases are exchanged. */
export type Pair = readonly [Tenant, Tenant];

/**
 * Shuts earlier runs out of the connected database of one of the pair.
 * @throws {OperatorError} when it belongs to neither of the pair
 */
export async function claimForSwap(
  database: pg.Client,
  epoch: number,
  { roleName }: Tenant,
  pair: Pair,
): Promise<void> {
  await becomeMember(database, roleName);
  await claimDatabase(database, { epoch }, async () => {
    const { rowCount } = await database.query('select from tenant_identity where guid in ($1, $2)', guids(pair));
    if (!rowCount) throw foreignDatabase();
  });
}

/**
 * Gives the connected database to one of the pair: its stamp and the comment of its login name that tenant.
 * @param role the login of the database
 * @param login whether it lets its login in
 * @throws {RunReplacedError} when a later run has claimed it. @throws {OperatorError} when it belongs to neither of the pair
 */
export async function giveDatabase(
  database: pg.Client,
  epoch: number,
  role: string,
  { owner, pair, login }: { owner: Tenant; pair: Pair; login: 'login' | 'nologin' },
): Promise<void> {
  await guardedChange(database, { epoch }, async () => {
    const { rowCount } = await database.query('update tenant_identity set guid = $3 where guid in ($1, $2)', [
      ...guids(pair),
      owner.guid,
    ]);
    if (!rowCount) throw foreignDatabase();
    const comment = roleComment({ roleName: role, guid: owner.guid });
    await database.query(`alter role ${quoteIdentifier(role)} ${login}; ${comment}`);
  });
}

function guids(pair: Pair): string[] {
  return pair.map(({ guid }) => guid);
}

function foreignDatabase(): OperatorError {
  return new OperatorError('the database belongs to another tenant, or is being purged: run npx backoffice doctor');
}
