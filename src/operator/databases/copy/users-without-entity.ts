import type pg from 'pg';
import type { Installation } from '../../../control/installation.ts';
import { nameOfUser } from '../../../control/user-kinds.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import type { DatabaseAddress } from '../store/database-store.ts';

/** An active user of scope `Self`, with the entity that the control database names. */
export interface LimitedUser {
  /** The address of a person, or the name of a program. */
  readonly name: string;
  /** The number of the entity. */
  readonly id: string;
  /** The time at which the entity was created, in ISO 8601 with microseconds. */
  readonly since: string;
}

/** Returns the limited users of each tenant, by its id; those of one with `tenantId`. */
export async function readLimitedUsers(
  control: pg.Client,
  tenantId?: number,
): Promise<Map<number, LimitedUser[]>> {
  const { rows } = await control.query<LimitedUser & { tenant: string }>(
    `select tenant_id as tenant, ${nameOfUser('u')} as name, entity_id as id, to_json(entity_since) #>> '{}' as since
       from users u
      where scope = 'Self' and entity_id is not null and disabled_at is null and ($1::bigint is null or tenant_id = $1)
      order by name`,
    [tenantId ?? null],
  );
  return Map.groupBy(rows, ({ tenant }) => Number(tenant));
}

/**
 * Returns the names of the users whose entity the connected database does not have. They
 * read nothing of an entity there, also if it has another one with the same number.
 */
export async function findWithoutEntity(
  client: pg.Client,
  users: readonly LimitedUser[],
): Promise<string[]> {
  if (users.length === 0) return [];

  const { rows } = await client.query<{ name: string }>(
    `select name from json_to_recordset($1) as u (name text, id bigint, since timestamptz)
      where not exists (select from entities e where e.id = u.id and e.created_at = u.since) order by name`,
    [JSON.stringify(users)],
  );
  return rows.map(({ name }) => name);
}

/**
 * Returns the names of the users of a tenant whose entity a database of it does not have.
 */
export async function findWithoutEntityIn(
  { servers, controlUrl }: Installation,
  tenantId: number,
  { server, database }: DatabaseAddress,
): Promise<string[]> {
  const users = await withConnection(controlUrl, client => readLimitedUsers(client, tenantId));

  return withConnection(servers.adminUrl(server, database), client =>
    findWithoutEntity(client, users.get(tenantId) ?? []),
  );
}

/**
 * Returns the names of users whose entity was created after a time: earlier data does not
 * have it.
 */
export function withLaterEntity(users: readonly LimitedUser[] = [], time: Date): string[] {
  return users.filter(({ since }) => new Date(since) > time).map(({ name }) => name);
}

/** The sentence of a plan about such users; empty for none. */
export function withoutEntityText(names: readonly string[]): string {
  return names.length === 0
    ? ''
    : ` Its data does not have the entity of these users, who would read nothing of one: ${names.join(', ')}.`;
}
