import type { ControlStatements, Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { operatorName } from '../command/operator-name.ts';
import { type SignedRecord, signRecord, type UnsignedRecord } from './purge-record.ts';

/** A purge after which a backup target may still have the key of the tenant's archives. */
export interface UnendedPurge {
  readonly id: number;
  readonly record: UnsignedRecord;
}

/** Returns the oldest unended purge of a tenant that had this slug; undefined without one. */
export async function findUnendedPurge(
  { statements }: ControlStatements,
  slug: string,
): Promise<UnendedPurge | undefined> {
  const [row] = await statements.execute<{ id: number; record: string }[]>(
    `select id::float8, record from purged_tenants
      where slug = ? and record is not null and signature is null order by id limit 1`,
    [slug],
  );
  return row && { id: row.id, record: JSON.parse(row.record) };
}

/**
 * Ends a purge: has the key removed from the backup target, and signs the record, which says that it is destroyed.
 * Each target that has archives of the tenant in the ledger needs a call of its own.
 * @param removeKey removes the key from a target, whose description it returns; it can be repeated
 * @param isLost true: the other targets do not exist any more, and the record names them
 * @throws {OperatorError} when another target may still have the key
 */
export async function endPurge(
  { statements, secrets }: Pick<Installation, 'statements' | 'secrets'>,
  { id, record }: UnendedPurge,
  removeKey: () => Promise<string>,
  isLost: boolean,
): Promise<SignedRecord> {
  const { guid, slug } = record.tenant;
  const target = await removeKey();
  const keyRemovedFrom = [...new Set([...record.keyRemovedFrom, target])];
  await statements.execute('update purged_tenants set record = ? where id = ? and signature is null', [
    JSON.stringify({ ...record, keyRemovedFrom }),
    id,
  ]);
  const targets = await statements.execute<{ target: string }[]>(
    'select distinct target from archives where tenant_guid = ? order by target',
    [guid],
  );
  const keyLeftIn = targets.map(row => row.target).filter(each => !keyRemovedFrom.includes(each));
  if (keyLeftIn.length > 0 && !isLost)
    throw new OperatorError(
      `${slug} is removed, and ${target} has no key of its archives, but ${keyLeftIn.join(' and ')} may still have it` +
        `. Run the purge again with that BACKUP_TARGET: npx backoffice purge ${slug} ` +
        '(if it does not exist any more: --lost-targets)',
    );
  const signed = signRecord(secrets, {
    ...record,
    keyRemovedFrom,
    keyLeftIn,
    purgedAt: new Date().toISOString(),
    purgedBy: operatorName(),
  });
  await statements.execute(
    `update purged_tenants set record = ?, signature = decode(?, 'base64') where id = ? and signature is null`,
    [signed.text, signed.signature.toString('base64'), id],
  );
  return signed;
}
