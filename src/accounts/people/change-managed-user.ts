import type { z } from 'zod';
import type { Precondition } from '../../lib/http/response/representation.ts';
import { pathId, type RouteInput } from '../../lib/http/route.ts';
import type { RowValues, Statement } from '../../lib/postgres/statement.ts';
import { problem } from '../../lib/problems.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import { requireMayManage } from '../../tenancy/permission-rules.ts';
import type { RequestContext } from '../../tenancy/request-context.ts';
import type { AuthServices } from '../auth/auth-services.ts';
import { setUserDisabled } from '../auth/set-user-disabled.ts';
import { changePeople, type HeldEntity, type PeopleTransaction } from './change-people.ts';
import { viewOf } from './user-statements.ts';

/** A user whom a change is about: a person, or a program. */
export interface Managed {
  readonly id: number;
  readonly permissions: readonly string[];
  readonly entityId: number | null;
  /** When the entity was created, in ISO 8601 with microseconds. */
  readonly entitySince: string | null;
}

/** One kind of users as administrators manage it: people, or programs. */
export interface ManagedKind<User extends Managed, View extends z.ZodType<object>> {
  /** The path of the list. */
  readonly path: string;
  readonly documentation: { readonly tag: string; readonly description: string };
  readonly view: View;
  readonly volatile: readonly string[];
  /** Selects what a change needs to know of a user of this kind. */
  readonly selectManaged: (tenantId: number, id: number) => Statement<User>;
  /** Selects one user of this kind, as the JSON text that `viewOf` reads. */
  readonly byId: (tenantId: number, id: number) => Statement;
}

/** A change of one user: it writes what the request asks for. */
export type ManagedChange<User> = (
  transaction: PeopleTransaction,
  user: User,
  entity: HeldEntity,
) => Promise<void>;

/**
 * Makes a change of the user that the path names, by the rules of `changePeople`.
 * @param entityId of the business entity that the user shall belong to
 * @returns the user as the change leaves it
 * @throws {Problem} those of `changePeople`, `findManagedUser` and the change
 */
export async function changeManagedUser<User extends Managed, View extends z.ZodType<object>>(
  kind: ManagedKind<User, View>,
  services: Pick<AuthServices, 'control' | 'peopleLimits'>,
  context: RequestContext,
  { params, precondition }: Pick<RouteInput<never>, 'params' | 'precondition'>,
  change: ManagedChange<User>,
  entityId: number | null = null,
): Promise<z.output<View> | undefined> {
  const tenantId = context.tenant.id;
  const changeFound = async (
    transaction: PeopleTransaction,
    entity: HeldEntity,
  ): Promise<Statement> => {
    const id = managedId(params);
    const user = await findManagedUser(kind, transaction, tenantId, id, precondition);
    await change(transaction, user, entity);

    return kind.byId(tenantId, user.id);
  };

  return viewOf<z.output<View>>(await changePeople(services, context, changeFound, { entityId }));
}

/** Returns the id of the user that a path names; undefined when no user can have it. */
export function managedId({ id }: Readonly<Record<string, string>>): number | undefined {
  return pathId(id, Number.MAX_SAFE_INTEGER);
}

/**
 * Returns a user whom the caller may manage: nobody changes, or gives away, rights that they do
 * not have. Does not lock the row: other administrators wait for the lock of `changePeople`, and
 * a person's own changes (a password, a confirmation) touch other columns.
 * @throws {Problem} `not_found`; `forbidden` when the user has a permission that the caller
 *   lacks; `precondition_failed`
 */
export async function findManagedUser<User extends Managed, View extends z.ZodType<object>>(
  kind: ManagedKind<User, View>,
  { query, permissions }: PeopleTransaction,
  tenantId: number,
  id: number | undefined,
  precondition?: Precondition,
): Promise<User> {
  const read = <Row extends object = RowValues>({ name, text, values }: Statement<Row>) =>
    query<Row>(name, text, values);
  const [user] = id ? await read(kind.selectManaged(tenantId, id)) : [];
  if (!user) throw problem('not_found');

  requireMayManage(user.permissions, permissions);
  if (precondition) precondition(viewOf(await read(kind.byId(tenantId, user.id))));

  return user;
}

/**
 * Returns the routes that disable and enable a user.
 * @param summaries their documentation
 */
export function disablingRoutes<User extends Managed>(
  kind: ManagedKind<User, z.ZodType<object>>,
  services: Pick<AuthServices, 'control' | 'notices' | 'peopleLimits'>,
  summaries: { readonly disable: string; readonly enable: string },
): TenantRoute[] {
  return (['disable', 'enable'] as const).map(action =>
    defineRoute({
      ...kind.documentation,
      method: 'POST',
      path: `${kind.path}/:id/${action}`,
      access: 'users.manage',
      summary: summaries[action],
      response: kind.view,
      hasTag: true,
      volatile: kind.volatile,
      takesIdempotencyKey: true,
      problems: ['wrong_state'],
      handler: async (input, context) => {
        const changed = await changeManagedUser(
          kind,
          services,
          context,
          input,
          ({ query }, { id }) => setUserDisabled(query, id, action === 'disable'),
        );
        services.notices.wake();

        return changed;
      },
    }),
  );
}
