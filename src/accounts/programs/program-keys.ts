import { randomUUID } from 'node:crypto';
import type { QueryControl } from '../../control/database.ts';
import { addedBy, requireNoFormerBuild } from '../../control/former-builds.ts';
import { isValidKey } from '../../control/key-lifetime.ts';
import { createProgramKey, type NewProgramKey } from '../../control/program-key.ts';
import { owners, type SecretBox } from '../../control/secret-box.ts';
import type { Precondition } from '../../lib/http/response/representation.ts';
import type { Condition, RowValues, Statement } from '../../lib/postgres/statement.ts';
import { problem } from '../../lib/problems.ts';
import { requireMayManage } from '../../tenancy/permission-rules.ts';
import type { PeopleTransaction } from '../people/change-people.ts';
import { viewOf } from '../people/user-statements.ts';
import { type KeyView, keyConditions, keyTable } from './program-table.ts';

/** Maximum valid keys of a program: enough to replace one in each place in turn. */
export const maxKeys = 5;

/** The key that a program shall get. */
export interface KeyRequest {
  readonly tenantId: number;
  readonly programId: number;
  /** The id of the user who makes it; null: an operator. */
  readonly madeBy: number | null;
  readonly expiresAt: Date;
}

const countKeys = `
  select count(*)::int as count from program_keys k where tenant_id = $1 and program_id = $2 and ${isValidKey}`;
const removeEnded = `
  delete from program_keys
   where tenant_id = $1 and program_id = $2 and least(expires_at, revoked_at) < now() - interval '1 year'`;
const insertKey = `
  insert into program_keys (id, tenant_id, program_id, hash, prefix, made_by, expires_at)
  values ($1, $2, $3, $4, $5, $6, $7)`;

/**
 * Adds a key to a program that the caller may manage, and removes the keys that ended a year
 * ago.
 * @returns the id of its row, and the key itself, of which the row has only a hash
 * @throws {Problem} `limit_reached`; `migration_pending` while a build runs that knows no keys
 */
export async function addKey(
  query: QueryControl,
  { tenantId, programId, madeBy, expiresAt }: KeyRequest,
): Promise<Pick<NewProgramKey, 'key' | 'prefix'> & { id: string }> {
  await requireNoFormerBuild(query, addedBy.programs);
  const ofProgram = [tenantId, programId];
  const [counted] = await query<{ count: number }>('count_program_keys', countKeys, ofProgram);
  if ((counted?.count ?? 0) >= maxKeys) {
    throw problem('limit_reached', { detail: `The program has ${maxKeys} valid keys.` });
  }
  await query('remove_ended_keys', removeEnded, ofProgram);

  const id = randomUUID();
  const { key, hash, prefix } = createProgramKey();
  await query('insert_program_key', insertKey, [
    id,
    tenantId,
    programId,
    hash,
    prefix,
    madeBy,
    expiresAt,
  ]);

  return { id, key, prefix };
}

/**
 * Makes a key as `addKey` does, for a request.
 * @returns the statement that selects its record, and the key, sealed: an idempotency key
 *   stores this row (`openMadeKey`)
 * @throws {Problem} those of `addKey`
 */
export async function makeKey(
  { query }: Pick<PeopleTransaction, 'query'>,
  request: KeyRequest,
  secrets: SecretBox,
): Promise<Statement> {
  const { tenantId, programId } = request;
  const { id, key } = await addKey(query, request);

  const sealed = secrets.seal(key, owners.programKey(id)).toString('base64');
  const { text, values } = keyTable.selectJson(keyConditions(tenantId, programId, id));
  return {
    name: 'made_program_key',
    text: `select made.json, $${values.length + 1}::text as sealed from (${text}) made`,
    values: [...values, sealed],
  };
}

/**
 * Returns the key of the row that `makeKey` has selected.
 * @throws {Problem} `idempotency_key_reused` when the row is that of an earlier request, and was
 *   sealed under a master key that has been replaced since
 */
export function openMadeKey(
  [row]: readonly RowValues[],
  secrets: SecretBox,
): KeyView & { Key: string } {
  const view: KeyView = JSON.parse(String(row?.json));
  const sealed = Buffer.from(String(row?.sealed), 'base64');
  try {
    return { ...view, Key: secrets.open(sealed, owners.programKey(view.Id)).toString() };
  } catch (cause) {
    throw problem('idempotency_key_reused', {
      detail: 'The key of the earlier request cannot be shown again. Revoke it, and make another.',
      cause,
    });
  }
}

const revokeOne = `
  update program_keys set revoked_at = now() where id = $1::uuid and revoked_at is null`;

/**
 * Revokes a key of a program that the caller may manage; every process refuses it within 1 s.
 * Revoking it again keeps the first time.
 * @param conditions `keyConditions` of the key
 * @throws {Problem} `not_found`, `precondition_failed`
 */
export async function revokeKey(
  query: QueryControl,
  conditions: readonly Condition[],
  precondition?: Precondition,
): Promise<void> {
  const { name, text, values } = keyTable.selectJson(conditions);
  const key = viewOf<KeyView>(await query(name, text, values));
  if (!key) throw problem('not_found');

  precondition?.(key);
  await query('revoke_program_key', revokeOne, [key.Id]);
}

const permissionsOfMade = `
  select distinct unnest(r.permissions) as permission
    from program_keys k join users u on u.id = k.program_id join roles r on r.id = u.role_id
   where k.tenant_id = $1 and k.made_by = $2 and ${isValidKey}`;
const revokeMade = `
  update program_keys k set revoked_at = now() where tenant_id = $1 and made_by = $2 and ${isValidKey}
  returning id`;

/**
 * Revokes all keys of a tenant that a user has made and that are valid.
 * @returns their number
 * @throws {Problem} `forbidden` when one of their programs has a permission that the caller
 *   lacks
 */
export async function revokeKeysMadeBy(
  { query, permissions }: PeopleTransaction,
  tenantId: number,
  userId: number,
): Promise<number> {
  const granted = await query<{ permission: string }>(
    'permissions_of_made_keys',
    permissionsOfMade,
    [tenantId, userId],
  );
  requireMayManage(
    granted.map(({ permission }) => permission),
    permissions,
  );

  return (await query('revoke_made_keys', revokeMade, [tenantId, userId])).length;
}
