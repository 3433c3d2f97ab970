import type { Installation } from '../../installation.ts';
import type { Statements } from '../../postgres/statements.ts';
import { operatorName } from '../operator-name.ts';
import { type SignedRecord, signRecord, type UnsignedRecord } from './purge-record.ts';

/** A purge after which the keyring of the backup target may still have the key of the tenant's archives. */
export interface UnendedPurge {
  readonly id: number;
  readonly record: UnsignedRecord;
}

/** Returns the oldest unended purge of a tenant that had this slug; undefined without one. */
export async function findUnendedPurge(
  { statements }: { readonly statements: Statements },
  slug: string,
): Promise<UnendedPurge | undefined> {
  const [row] = await statements.execute<{ id: number; record: string }[]>(
    `select id::float8, record from purged_tenants
      where slug = ? and record is not null and signature is null order by id limit 1`,
    [slug],
  );
  return row && { id: row.id, record: JSON.parse(row.record) as UnsignedRecord };
}

/**
 * Ends a purge: has the key removed from the backup target, and signs the record, which says that it is destroyed.
 * @param removeKey removes the key; it can be repeated
 */
export async function endPurge(
  { statements, secrets }: Pick<Installation, 'statements' | 'secrets'>,
  { id, record }: UnendedPurge,
  removeKey: () => Promise<void>,
): Promise<SignedRecord> {
  await removeKey();
  const signed = signRecord(secrets, {
    ...record,
    purgedAt: new Date().toISOString(),
    purgedBy: operatorName(),
  });
  await statements.execute(
    `update purged_tenants set record = ?, signature = decode(?, 'base64') where id = ? and signature is null`,
    [signed.text, signed.signature.toString('base64'), id],
  );
  return signed;
}
