import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { completeArchive, recordWriting } from '../../src/operator/backup/archive-rows.ts';
import {
  createArchiveName,
  fingerprintRecipients,
} from '../../src/operator/backup/target/archive-name.ts';
import type { Target } from '../../src/operator/backup/target/target.ts';
import { recipients } from './small-archives.ts';

interface RecordedArchive {
  /** The guid of the tenant. */
  readonly tenant: string;
  readonly time: Date;
}

/**
 * Writes an object as a run at that time would have done, with its row; nothing can be restored
 * from it.
 * @returns its name
 */
export async function writeRecorded(
  controlUrl: string,
  target: Target,
  { tenant, time }: RecordedArchive,
): Promise<string> {
  return withConnection(controlUrl, async control => {
    const { rows } = await control.query<{
      installation: string;
      databaseId: string;
      epoch: string;
      schemaVersion: string;
    }>(
      `select i.id as installation, d.id as "databaseId", d.epoch, t.schema_version as "schemaVersion"
         from installation i, tenants t join tenant_databases d on d.tenant_id = t.id and d.state = 'current'
        where guid = $1`,
      [tenant],
    );
    const { installation = '', databaseId = '', epoch = '', schemaVersion = '' } = rows[0] ?? {};
    const bytes = Buffer.from('an archive');
    const name = createArchiveName({
      installation,
      tenant,
      time,
      recipients: fingerprintRecipients(recipients),
    });
    const source = { databaseId, epoch, counters: null };

    await recordWriting(control, target, name, source);
    await target.write(name.name, Readable.from([bytes]));
    await completeArchive(
      control,
      target,
      {
        ...name,
        ...source,
        state: 'complete',
        schemaVersion,
        bytes: null,
        checksum: null,
        drilledAt: null,
        provedAt: null,
        fault: null,
      },
      {
        size: bytes.length,
        sha256: createHash('sha256').update(bytes).digest('hex'),
        unpackedBytes: bytes.length,
      },
      new Map(),
    );

    return name.name;
  });
}
