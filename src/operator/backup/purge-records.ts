import { z } from 'zod';
import type { SecretBox } from '../../control/secret-box.ts';
import type { Queryable } from '../../postgres/shared-connection.ts';
import { isSignedBy } from '../tenants/purge-record.ts';
import { readJson, writeJson } from './target-files.ts';
import type { BackupTarget } from './targets/backup-target.ts';

/** A tenant that the control database knows as purged. */
interface PurgedTenant {
  readonly guid: string;
  /** The signed record; null: of a build that signed none. */
  readonly record: string | null;
  readonly signature: Buffer | null;
}

/** Returns those of the tenants that were purged. */
export async function readPurgedTenants(control: Queryable, guids: readonly string[]): Promise<PurgedTenant[]> {
  const { rows } = await control.query<{ guid: string; record: string | null; signature: Buffer | null }>(
    'select guid, record, signature from purged_tenants where guid = any ($1::uuid[])',
    [guids],
  );
  return rows;
}

/**
 * Writes the record of a purge to the target. An earlier state of the control database, in which the tenant is still
 * there, learns from it that the tenant does not come back.
 */
export async function writePurgeRecord(target: BackupTarget, { guid, record, signature }: PurgedTenant): Promise<void> {
  await writeJson(target, `purged/${guid}.json`, {
    ...{ format: 1, tenant: guid, record },
    signature: signature?.toString('base64') ?? null,
  });
}

const recordContract = z.object({
  tenant: z.uuid(),
  record: z.string().nullable(),
  signature: z.base64().nullable(),
});

/**
 * Reads which tenants the target knows as purged, each with whether the record is signed with a key that this master
 * key makes: another one may be a forgery, or older than a change of the master key.
 */
export async function readPurgeRecords(target: BackupTarget, secrets: SecretBox): Promise<Map<string, boolean>> {
  const purged = new Map<string, boolean>();
  for await (const { name } of target.list('purged/')) {
    const { data } = recordContract.safeParse(await readJson(target, name));
    if (!data || name !== `purged/${data.tenant}.json`) continue;
    const { tenant, record, signature } = data;
    const isSigned = record !== null && signature !== null;
    purged.set(
      tenant,
      isSigned && isSignedBy(secrets, tenant, { text: record, signature: Buffer.from(signature, 'base64') }),
    );
  }
  return purged;
}
