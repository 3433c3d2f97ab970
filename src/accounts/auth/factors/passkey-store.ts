import { randomUUID } from 'node:crypto';
import {
  type ControlDatabase,
  type QueryControl,
  queryControl,
} from '../../../control/database.ts';
import { problem } from '../../../lib/problems.ts';
import type { CodeOwner } from './check-code.ts';
import type { MadePasskey, StoredPasskey } from './passkeys.ts';

const columns = `id, credential_id as "credentialId", public_key as "publicKey", transports, rp_id as "rpId"`;
const ofUser = `
  select ${columns} from factors
   where tenant_id = $1 and user_id = $2 and kind = 'passkey' order by created_at, id`;

/** Returns the passkeys of a person for pages of any host, the oldest first. */
export function listPasskeys(
  control: ControlDatabase,
  { tenantId, userId }: Pick<CodeOwner, 'tenantId' | 'userId'>,
): Promise<StoredPasskey[]> {
  return queryControl<StoredPasskey>(control, 'list_passkeys', ofUser, [tenantId, userId]);
}

/** A passkey, and the person whose it is. */
export interface OwnedPasskey extends StoredPasskey {
  readonly userId: number;
  readonly userGuid: string;
  /** True for one that is no whole login before its person has confirmed it (`confirmHeld`). */
  readonly isHeld: boolean;
}

const byCredential = `
  select f.id, credential_id as "credentialId", public_key as "publicKey", transports, rp_id as "rpId",
         u.id::float8 as "userId", u.guid as "userGuid", held_at is not null as "isHeld"
    from factors f join users u on u.id = f.user_id and u.tenant_id = f.tenant_id
   where f.tenant_id = $1 and credential_id = $2`;

/** Returns a passkey of a tenant by the name that its authenticator gave it. */
export async function findPasskey(
  control: ControlDatabase,
  tenantId: number,
  credentialId: string,
): Promise<OwnedPasskey | undefined> {
  const values = [tenantId, Buffer.from(credentialId, 'base64url')];
  const [found] = await queryControl<OwnedPasskey>(control, 'find_passkey', byCredential, values);
  return found;
}

const insertOne = `
  insert into factors
    (id, tenant_id, user_id, kind, name, credential_id, public_key, sign_count, transports, rp_id, confirmed_at)
  values ($1, $2, $3, 'passkey', $4, $5, $6, $7, $8, $9, now())
  on conflict (credential_id) do nothing returning id`;

/**
 * Inserts a passkey, which counts from then on.
 * @param query of a transaction that has locked the account
 * @returns its id; undefined if there is one of this name, of whomever
 */
export async function insertPasskey(
  query: QueryControl,
  { tenantId, userId }: Pick<CodeOwner, 'tenantId' | 'userId'>,
  name: string,
  { credentialId, publicKey, signCount, transports, rpId }: MadePasskey,
): Promise<string | undefined> {
  const ofFactor = [randomUUID(), tenantId, userId, name];
  const ofKey = [credentialId, publicKey, signCount, transports, rpId];
  const [inserted] = await query<{ id: string }>('insert_passkey', insertOne, [
    ...ofFactor,
    ...ofKey,
  ]);
  return inserted?.id;
}

const takeCount = `
  update factors set sign_count = greatest(sign_count, $2::bigint), last_used_at = now()
   where id = $1::uuid and (sign_count = 0 or $2::bigint = 0 or $2::bigint > sign_count)
     and not ($3 and held_at is not null)
  returning id`;

/**
 * Takes a signature of a passkey in the transaction of what it permits.
 * @param isAlone true for a login by the passkey alone, which one that is held does not permit
 * @returns false if the passkey was removed, or both counters are above 0 and the new one does
 *   not grow: a copy of the passkey has signed
 */
export async function takeSignature(
  query: QueryControl,
  { id }: Pick<StoredPasskey, 'id'>,
  signCount: number,
  isAlone = false,
): Promise<boolean> {
  return (await query('take_signature', takeCount, [id, signCount, isAlone])).length > 0;
}

const confirmOne = `
  update factors set held_at = null
   where id = $1::uuid and tenant_id = $2 and user_id = $3 and kind = 'passkey' and held_at is not null
     and exists (
       select from sessions s where s.id = $4::uuid and ('pwd' = any (s.methods) or s.verified_at is not null))
  returning id`;
const ofPerson = `
  select held_at is not null as "isHeld" from factors
   where id = $1::uuid and tenant_id = $2 and user_id = $3 and kind = 'passkey'`;

/**
 * Confirms a passkey that a new password holds: it is a whole login again. The session must
 * have proved the password, which a passkey alone does not.
 * @param query of a transaction that has locked the account
 * @throws {Problem} `not_found`; `verification_required` in a session that was opened by a
 *   passkey alone, and has not proved the password since
 */
export async function confirmHeld(
  query: QueryControl,
  { tenantId, userId }: Pick<CodeOwner, 'tenantId' | 'userId'>,
  id: string,
  sessionId: string,
): Promise<void> {
  const key = [id, tenantId, userId];
  if ((await query('confirm_held', confirmOne, [...key, sessionId])).length > 0) return;

  const [found] = await query<{ isHeld: boolean }>('passkey_of_person', ofPerson, key);
  if (!found) throw problem('not_found');
  if (found.isHeld) throw passwordNeeded();
}

function passwordNeeded() {
  return problem('verification_required', {
    detail:
      'You have logged in by a passkey alone: send your password to /api/v1/auth/verify first.',
  });
}
