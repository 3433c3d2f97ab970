import type { QueryControl } from '../../control/database.ts';

/** A network stays known for this long after a login from it. */
export const knownNetworkAge = `interval '30 days'`;

const knownNetwork = `
  select from login_networks where user_id = $1 and network = $2 and last_login_at > now() - ${knownNetworkAge}`;

/** True if the user has lately logged in from a network, or used a token of a mail there. */
export async function isKnownNetwork(
  query: QueryControl,
  userId: number,
  network: string,
): Promise<boolean> {
  return (await query('is_known_network', knownNetwork, [userId, network])).length > 0;
}

const maxNetworks = 50; // of a user
/** Rows removed at a time. A new network adds only one, so the table does not grow. */
const batch = 100;

/**
 * Returns the SQL that remembers a network, and returns a row if that stores anything: a known
 * network does once a day.
 * @param user SQL of the id of the user
 * @param network SQL of the network
 */
export const insertNetwork = (user: string, network: string): string => `
  insert into login_networks (user_id, network) values (${user}, ${network})
  on conflict (user_id, network) do update set last_login_at = now()
   where login_networks.last_login_at < now() - interval '1 day'
  returning true as written`;
const insertOne = insertNetwork('$1', '$2');
// Deletes rows by `ctid`: by key, PostgreSQL would search the primary key again for each row.
// Only rows to be removed are locked.
const removeSurplus = `
  delete from login_networks where ctid = any (array(
    select ctid from login_networks where ctid = any (array(
      select ctid from login_networks where user_id = $1 and network <> $2
       order by last_login_at desc, network limit ${batch} offset ${maxNetworks - 1}))
     for update skip locked))`;
const removeExpired = `
  delete from login_networks where ctid = any (array(
    select ctid from login_networks where last_login_at < now() - ${knownNetworkAge}
     order by last_login_at limit ${batch} for update skip locked))`;

/**
 * Remembers a network from which a user has logged in, or has used a token of a mail: in both
 * cases the client is the owner of the account, and may log in from there while failed logins
 * of others block the account. If that stores anything, it also removes networks
 * (`removeOldNetworks`). A login does both by itself: `insertSessionOf`.
 * @param query of a transaction that has locked the row of the user, and that commits
 *   afterwards
 */
export async function rememberNetwork(
  query: QueryControl,
  userId: number,
  network: string,
): Promise<void> {
  const written = await query('insert_network', insertOne, [userId, network]);
  if (written.length > 0) await removeOldNetworks(query, userId, network);
}

/**
 * Removes the oldest networks of a user with more than 50, and some networks of any user that
 * are no longer known.
 *
 * Transactions that remember networks cannot deadlock:
 * 1. Such a transaction waits only for the row of its user, for sessions of its user, and for
 *    its own network, which another one may be removing.
 * 2. After it removes networks, it waits for nothing: it skips locked rows, and its caller
 *    commits.
 * @param network that the transaction has stored
 */
export async function removeOldNetworks(
  query: QueryControl,
  userId: number,
  network: string,
): Promise<void> {
  await query('remove_surplus_networks', removeSurplus, [userId, network]);
  await query('remove_expired_networks', removeExpired, []);
}
