import { z } from 'zod';
import { scopes } from '../control/scopes.ts';
import { longId, timestamp } from '../http/fields.ts';
import { isoTime } from '../postgres/iso-time.ts';
import type { Statement } from '../postgres/table-statements.ts';
import type { Caller } from '../tenancy/request-context.ts';

export const userView = z
  .object({
    Id: longId(),
    Guid: z.string(),
    Email: z.string(),
    FirstName: z.string(),
    LastName: z.string(),
    Role: z.string(),
    Scope: z.enum(scopes),
    EntityId: longId().nullable(),
    IsDisabled: z.boolean(),
    ConfirmedAt: timestamp().nullable(),
    LastLoginAt: timestamp().nullable(),
    CreatedAt: timestamp(),
  })
  .meta({ title: 'User' });
export type UserView = z.output<typeof userView>;

/** A row with exactly the fields of the view, in their order. A login inserts a session and deletes only expired ones. */
const selectUsers = `
  select u.id::float8 as "Id", u.guid as "Guid", u.email as "Email", u.first_name as "FirstName",
         u.last_name as "LastName", r.name as "Role", u.scope as "Scope", u.entity_id::float8 as "EntityId",
         u.disabled_at is not null as "IsDisabled", ${isoTime('u.confirmed_at')} as "ConfirmedAt",
         (select ${isoTime('max(s.created_at)')} from sessions s where s.user_id = u.id) as "LastLoginAt",
         ${isoTime('u.created_at')} as "CreatedAt"
    from users u join roles r on r.id = u.role_id
   where u.tenant_id = $1`;

/** Whose users a statement selects: those of a tenant, or of one business entity for a reader of scope Self. */
interface Reader {
  readonly tenantId: number;
  /** Undefined = users of any entity, and users without one. */
  readonly entityId?: number | undefined;
}

/** A caller of scope Self sees the users of the caller's entity; without an entity, nobody. */
export function readerOf(tenantId: number, { scope, entityId }: Caller): Reader {
  return { tenantId, entityId: scope === 'Self' ? (entityId ?? 0) : undefined };
}

/** Selects one user. */
export function userById({ tenantId, entityId }: Reader, id: number): Statement {
  const text = `${selectUsers} and u.id = $2 and ($3::bigint is null or u.entity_id = $3)`;
  return { name: 'user_view', text, values: [tenantId, id, entityId ?? null] };
}

/** Selects the next users, in the order of their ids. */
export function usersAfter({ tenantId, entityId }: Reader, after: number, limit: number): Statement {
  const text = `${selectUsers} and u.id > $2 and ($3::bigint is null or u.entity_id = $3) order by u.id limit $4`;
  return { name: 'user_views', text, values: [tenantId, after, entityId ?? null, limit] };
}
