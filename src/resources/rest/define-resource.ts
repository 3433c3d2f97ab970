import type { EntityClass } from '@mikro-orm/postgresql';
import type { z } from 'zod';
import type { TenantRoute } from '../../tenancy/define-route.ts';
import { createRoute } from './create-route.ts';
import { deleteRoute } from './delete-route.ts';
import { listRoute } from './list-route.ts';
import { patchRoute } from './patch-route.ts';
import { readRoutes } from './read-routes.ts';
import { createDefinition, type ResourceDefinition } from './resource-definition.ts';
import type { ResourceOptions } from './resource-options.ts';
import { restoreRoute } from './restore-route.ts';
import { updateRoute } from './update-route.ts';

export interface Resource {
  readonly name: string;
  readonly path: string;
  readonly entity: EntityClass<object>;
  readonly routes: TenantRoute[];
  /** What the routes are made of, for other ways to change records. */
  readonly definition: ResourceDefinition;
}

/**
 * Defines the REST routes of one table: list, read, look up by code, create, replace, patch and delete. A trigger of the
 * database writes the audit entry of every change.
 * @throws when `options.entity` is not an entity of MikroORM
 */
export function defineResource<
  Row extends object,
  View extends z.ZodObject,
  Create extends z.ZodObject,
  Update extends z.ZodObject = Create,
>(options: ResourceOptions<Row, View, Create, Update>): Resource {
  const definition = createDefinition(options);
  const { name, path, entity, extraRoutes = [] } = definition;
  const routes = [
    ...extraRoutes,
    listRoute(definition),
    ...readRoutes(definition),
    createRoute(definition),
    updateRoute(definition),
    patchRoute(definition),
    deleteRoute(definition),
    ...(definition.softDelete ? [restoreRoute(definition)] : []),
  ];
  return { name, path, entity, routes, definition };
}
