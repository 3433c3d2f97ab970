import type pg from 'pg';
import { requireMasterKey, storeMasterKey } from '../../control/present-key.ts';
import { MasterKeyError, type SecretBox } from '../../control/secret-box.ts';
import { inTransaction } from '../../lib/postgres/in-transaction.ts';
import { createTenantKey } from '../../sales/webhooks/webhook-secret.ts';
import { removeLostFactors } from './lost-factors.ts';

/** Secrets that nobody can open, because the master key that sealed them is lost. */
export interface LostSecrets {
  /** Tenants whose login roles need other passwords. */
  readonly tenants: number;
  /** Tenants whose webhooks, if they have any, need other secrets. */
  readonly webhookTenants: number;
  /** Authenticator apps of people, which are removed. */
  readonly factors: number;
  /** The people who have no second factor any more, and set one up before the next login. */
  readonly factorsLost: readonly string[];
  /** The names of the servers whose URLs are lost. */
  readonly servers: readonly string[];
}

/**
 * Makes `MASTER_KEY` the master key of a restored control database whose own one is lost; does
 * nothing where one of the keys of this process is its own. Of the secrets that the lost key
 * has sealed,
 *
 *   - signing keys are removed: `afterRestore` makes others;
 *   - keys of webhooks are replaced: the secret of a webhook is as lost as in a clone, and an
 *     administrator of its tenant makes another one;
 *   - authenticator apps of people are removed; who has no other second factor sets one up
 *     before the next login (`removeLostFactors`);
 *   - the key of archives is forgotten: the next run makes another one, and archives every
 *     tenant anew, because nothing proves the archives that there are;
 *   - passwords of login roles stay until `doctor --fix <id>` replaces them, on their servers
 *     too;
 *   - URLs of servers stay until `server add` gives them again.
 *
 * @returns what is lost; undefined: nothing
 */
export async function replaceLostMasterKey(
  client: pg.Client,
  secrets: SecretBox,
): Promise<LostSecrets | undefined> {
  if (await hasMasterKey(client, secrets)) return undefined;

  return inTransaction(client, async () => {
    await storeMasterKey(client, secrets.masterKey);
    await requireMasterKey(client, secrets);

    await client.query('delete from signing_keys');
    await client.query('update installation set archive_key = null');
    await client.query('update archives set counters = null');
    const { rows: webhooks } = await client.query<{ id: string; guid: string }>(
      'select w.id, guid from webhook_tenants w join tenants t on t.id = tenant_id',
    );
    for (const { id, guid } of webhooks) {
      await client.query('update webhook_tenants set sealed_key = $2 where id = $1', [
        id,
        createTenantKey(secrets, guid),
      ]);
    }

    const { factors, people: factorsLost } = await removeLostFactors(client);

    const { rows } = await client.query<{ tenants: number; servers: string[] }>(
      `select (select count(*)::int from tenants where status <> 'provisioning') as tenants,
              array(select name from servers where admin_url is not null order by 1) as servers`,
    );
    const { tenants = 0, servers = [] } = rows[0] ?? {};

    return { tenants, webhookTenants: webhooks.length, factors, factorsLost, servers };
  });
}

async function hasMasterKey(client: pg.Client, secrets: SecretBox): Promise<boolean> {
  try {
    await requireMasterKey(client, secrets);
    return true;
  } catch (error) {
    if (error instanceof MasterKeyError) return false;
    throw error;
  }
}
