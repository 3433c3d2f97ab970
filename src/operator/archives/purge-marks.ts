import { z } from 'zod';
import type { SecretBox } from '../../control/secret-box.ts';
import { readJson, writeJson } from './target-files.ts';
import type { BackupTarget } from './targets/backup-target.ts';

/*
 * A mark in the target says that a tenant was purged: an earlier state of the control database, in which the tenant is
 * still there, learns from it that the tenant does not come back.
 */

const purpose = 'purged_tenant';
const markContract = z.object({ tenant: z.uuid(), code: z.base64().transform(text => Buffer.from(text, 'base64')) });

/** Writes that a tenant was purged, with a code that only the master key makes. */
export async function writePurgeMark(target: BackupTarget, secrets: SecretBox, tenant: string): Promise<void> {
  const code = secrets.mac(purpose, tenant).toString('base64');
  await writeJson(target, `purged/${tenant}.json`, { format: 1, tenant, code });
}

/**
 * Reads which tenants the target knows as purged, each with whether this master key has made the code: another code may
 * be a forgery, or older than a change of the master key.
 */
export async function readPurgeMarks(target: BackupTarget, secrets: SecretBox): Promise<Map<string, boolean>> {
  const marks = new Map<string, boolean>();
  for await (const { name } of target.list('purged/')) {
    const { data } = markContract.safeParse(await readJson(target, name));
    if (data && name === `purged/${data.tenant}.json`)
      marks.set(data.tenant, secrets.verifyMac(data.code, purpose, data.tenant));
  }
  return marks;
}
