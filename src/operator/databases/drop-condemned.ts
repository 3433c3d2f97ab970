import type pg from 'pg';
import type { Installation } from '../../installation.ts';
import { connectFailure, OperatorError } from '../../log/operator-error.ts';
import { forgetDatabase } from './condemn-databases.ts';
import { type LockedTenant, readDatabases, type TenantDatabase } from './database-store.ts';
import { dropDatabase } from './drop-database.ts';

/** Drops the condemned databases of a tenant. @throws when a server cannot be used, after the other databases */
export async function dropCondemned(
  installation: Installation,
  control: pg.Client,
  { id, guid, slug }: LockedTenant,
): Promise<void> {
  const { rows } = await control.query(
    `select from tenants where id = $1 and (status = 'provisioning' or purging_at is not null)`,
    [id],
  );
  const failures: unknown[] = [];
  for (const database of await readDatabases(control, id, ['condemned']))
    await dropDatabase(installation, database, guid, rows.length > 0).then(
      () => forgetDatabase(control, database.id),
      error => failures.push(notDropped(slug, database, error)),
    );
  if (failures.length > 0) throw failures[0];
}

/** Returns the error to report when a database could not be dropped. */
export function notDropped(slug: string, { server, database }: TenantDatabase, error: unknown): unknown {
  const reason = connectFailure(error);
  if (!reason) return error;
  const what = `Database ${database} of ${slug} on server ${server.name} could not be dropped (${reason})`;
  return new OperatorError(`${what}: when the server works, run the command again`, { cause: error });
}
