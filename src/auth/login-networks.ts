import type { QueryControl } from '../control/database.ts';

/** A network stays known for this long after a login from it. */
export const knownNetworkAge = `interval '30 days'`;

const insertNetwork = `
  with forgotten as (
         delete from login_networks
          where user_id = $1 and network <> $2 and last_login_at < now() - ${knownNetworkAge})
  insert into login_networks (user_id, network) values ($1, $2)
  on conflict (user_id, network) do update set last_login_at = now()
   where login_networks.last_login_at < now() - interval '1 day'`;

/**
 * Remembers a network from which a user has logged in, or has used a token of a mail: in both cases the client is the
 * owner of the account, and may log in from there while failed logins of others block the account.
 * @param query of a transaction that has locked the row of the user
 */
export async function rememberNetwork(query: QueryControl, userId: number, network: string): Promise<void> {
  await query('insert_network', insertNetwork, [userId, network]);
}
