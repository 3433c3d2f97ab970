import type { ControlDatabase } from './database.ts';

/**
 * The identity of an installation: the same for all of its processes and addresses, also after
 * a restore.
 */
export interface InstallationIdentity {
  readonly id: string;
  /** The time at which the control database got the id, in seconds since 1970. */
  readonly since: number;
}

/** Reads the identity that a migration has created. The control database must be at head. */
export async function readInstallationIdentity(
  control: ControlDatabase,
): Promise<InstallationIdentity> {
  const [row] = await control.em.execute<{ id: string; since: string }[]>(
    'select id, extract(epoch from created_at)::bigint as since from installation',
  );
  if (!row) throw new Error('the table installation of the control database has no row');
  return { id: row.id, since: Number(row.since) };
}
