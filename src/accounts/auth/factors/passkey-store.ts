import { randomUUID } from 'node:crypto';
import {
  type ControlDatabase,
  type QueryControl,
  queryControl,
} from '../../../control/database.ts';
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
}

const byCredential = `
  select f.id, credential_id as "credentialId", public_key as "publicKey", transports, rp_id as "rpId",
         u.id::float8 as "userId", u.guid as "userGuid"
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
   where id = $1::uuid and (sign_count = 0 or $2::bigint = 0 or $2::bigint > sign_count) returning id`;

/**
 * Takes a signature of a passkey in the transaction of what it permits.
 * @returns false if the passkey was removed, or both counters are above 0 and the new one does
 *   not grow: a copy of the passkey has signed
 */
export async function takeSignature(
  query: QueryControl,
  { id }: Pick<StoredPasskey, 'id'>,
  signCount: number,
): Promise<boolean> {
  return (await query('take_signature', takeCount, [id, signCount])).length > 0;
}
