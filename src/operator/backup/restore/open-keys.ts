import type {
  ConfigAccess,
  ControlAddress,
  ControlStatements,
  KeyAccess,
} from '../../../control/installation.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import { readArchiveKey } from '../archive/archive-keys.ts';
import { readIdentities } from '../archive/identities.ts';
import type { OpenKeys } from '../archive/open-archive.ts';

/**
 * The keys that open the archives of an installation's tenants, and prove that the installation
 * has written them.
 */
export interface TenantKeys extends OpenKeys {
  /** The id of the installation. */
  readonly installation: string;
}

/** Returns the id of an installation. */
export async function readInstallationId({ statements }: ControlStatements): Promise<string> {
  const { rows } = await statements.query<{ id: string }>('select id from installation');
  const [row] = rows;

  return row?.id ?? '';
}

/**
 * Reads the keys that open the archives of tenants.
 * @param withoutMac true: also archives without a proof of their writer
 * @throws {OperatorError} when this host has no identity, or the master key does not open the
 *   key of archives
 */
export async function readTenantKeys(
  { controlUrl, secrets, config }: ControlAddress & KeyAccess & ConfigAccess,
  withoutMac = false,
): Promise<TenantKeys> {
  const identities = await readIdentities(config.backup.identityFile);

  return withConnection(controlUrl, async control => {
    const { rows } = await control.query<{ id: string }>('select id from installation');
    const installation = rows[0]?.id ?? '';
    if (withoutMac) return { installation, identities, macKeys: undefined };

    const key = await readArchiveKey(control, secrets);
    return { installation, identities, macKeys: key ? [key] : [] };
  });
}
