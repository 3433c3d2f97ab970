import { createPrivateKey, createPublicKey, type KeyObject, sign } from 'node:crypto';
import type { Tenant } from '../../control/control-entities.ts';
import type { SecretBox } from '../../control/secret-box.ts';

/** What a purge destroyed. */
export interface PurgeRecord {
  readonly tenant: { readonly guid: string; readonly slug: string; readonly name: string; readonly createdAt: string };
  readonly database: string;
  readonly purgedAt: string;
  /** Login and host of the operator. */
  readonly purgedBy: string;
  /** The data key of its archives, which was destroyed; null: it had none. */
  readonly keyFingerprint: string | null;
  /** The archives that nobody can read any more, wherever they were copied to, unless `keyLeftIn` has a target. */
  readonly archives: readonly { readonly id: string; readonly target: string; readonly file: string }[];
  /** The backup targets from which the key was removed. */
  readonly keyRemovedFrom: readonly string[];
  /** The targets with archives of the tenant that may have its key: the operator gave them up (`--lost-targets`). */
  readonly keyLeftIn: readonly string[];
  /** The Ed25519 key that verifies the signature: 32 bytes in base64url. */
  readonly publicKey: string;
}

export type UnsignedRecord = Omit<PurgeRecord, 'publicKey'>;

export interface SignedRecord {
  /** The record as JSON: the bytes that are signed. */
  readonly text: string;
  readonly signature: Buffer;
}

/** Returns what a purge of a tenant destroys, as its record says when it is signed. */
export function purgeRecord(
  { guid, slug, name, databaseName, createdAt }: Tenant,
  facts: Pick<PurgeRecord, 'purgedBy' | 'keyFingerprint' | 'archives'>,
): UnsignedRecord {
  return {
    tenant: { guid, slug, name, createdAt: createdAt.toISOString() },
    database: databaseName,
    purgedAt: new Date().toISOString(),
    keyRemovedFrom: [],
    keyLeftIn: [],
    ...facts,
  };
}

/** Signs the record of a purge (Ed25519, RFC 8032), with a key that is derived from the master key. */
export function signRecord(secrets: SecretBox, record: UnsignedRecord): SignedRecord {
  const privateKey = signingKey(secrets);
  const { x: publicKey = '' } = createPublicKey(privateKey).export({ format: 'jwk' });
  const text = JSON.stringify({ ...record, publicKey } satisfies PurgeRecord);
  return { text, signature: sign(null, Buffer.from(text), privateKey) };
}

/** The bytes before the 32 bytes of an Ed25519 key in PKCS #8 (RFC 8410 §7). */
const pkcs8Prefix = Buffer.from('302e020100300506032b657004220420', 'hex');

function signingKey(secrets: SecretBox): KeyObject {
  const seed = secrets.mac('purge_record_key');
  return createPrivateKey({ key: Buffer.concat([pkcs8Prefix, seed]), format: 'der', type: 'pkcs8' });
}
