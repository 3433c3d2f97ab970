import type { Permission } from '../../control/permissions.ts';
import { camelCase, snakeCase } from '../../lib/runtime/casing.ts';
import type { Caller } from '../../tenancy/caller.ts';
import { permissionMissing } from '../../tenancy/define-route.ts';
import { type OwnEntity, ownEntityOf } from '../../tenancy/own-entity.ts';
import { activityView } from '../activity/activity.ts';
import { resources } from '../resources/index.ts';
import { promotions } from '../resources/promotion.ts';
import { promotionUseView } from '../resources/promotion-use.ts';
import { hrefOf, type ResourceDefinition } from '../resources/rest/resource-definition.ts';

type Row = Record<string, unknown>;

/** The changes that are read. */
export interface ChangeFilter {
  /** Names of resources, `Activity` included. */
  readonly resources: readonly string[];
  /** The actions; undefined: all. */
  readonly actions?: readonly string[] | undefined;
  /**
   * A caller of scope `Self` reads the changes of their own entity, and those of records that
   * belong to no entity.
   */
  readonly ownEntity?: OwnEntity | undefined;
}

/** A resource whose changes are in the feed. */
export interface ChangeSource {
  readonly name: string;
  /** The path of its list; undefined if it has none. */
  readonly path?: string;
  /** The callers who may read its records, and so its changes. */
  readonly access: Permission | 'user';
  /** The permission that a caller of scope `Self` needs in its place. */
  readonly accessOfSelf?: Permission | undefined;
  /**
   * True if records belong to a business entity, so that a caller of scope `Self` reads only
   * those of the own entity.
   */
  readonly isOwned: boolean;
  /** The column with the ids of business entities that a record names (`isForEntity`). */
  readonly namedColumn?: string | undefined;
  /** True if its view also has fields that are read from other records. */
  readonly isPartial?: boolean;
  /** The fields of its view that are columns of its table, with their columns. */
  readonly fields: readonly (readonly [field: string, column: string])[];
  /** The path of a record. */
  readonly href: (key: string, row: Row) => string;
}

const withColumns = (fields: readonly string[]) =>
  fields.map(field => [field, snakeCase(camelCase(field))] as const);

function sourceOf(resource: ResourceDefinition): ChangeSource {
  const { name, path, access, scopedBy, namesEntities, view, computed = [] } = resource;
  const fields = Object.keys(view.shape).filter(field => !computed.includes(camelCase(field)));
  const href = (key: string) => hrefOf(resource, key);
  return {
    name,
    path,
    access: access.read,
    accessOfSelf: access.readOfSelf,
    isOwned: scopedBy !== undefined,
    namedColumn: namesEntities && snakeCase(namesEntities),
    isPartial: computed.length > 0,
    fields: withColumns(fields),
    href,
  };
}

const activities: ChangeSource = {
  name: 'Activity',
  access: 'full.read',
  isOwned: true,
  fields: withColumns(Object.keys(activityView.shape)),
  href: key => `/api/v1/Activity/${key}`,
};

const promotionUses: ChangeSource = {
  name: 'PromotionUse',
  access: promotions.definition.access.read,
  isOwned: true,
  fields: withColumns(Object.keys(promotionUseView.omit({ Used: true }).shape)),
  href: (key, row) => `${promotions.path}/${key}/entity/${row.entity_id}/used`,
};

/**
 * Every resource whose changes are in the feed, by its name. Users and roles are not: see
 * `controlResources`.
 */
export const changeSources: ReadonlyMap<string, ChangeSource> = new Map(
  [...resources.map(({ definition }) => sourceOf(definition)), promotionUses, activities].map(
    each => [each.name, each],
  ),
);

/** The resources whose records belong to a business entity. */
export const ownedResources = [...changeSources.values()]
  .filter(({ isOwned }) => isOwned)
  .map(({ name }) => name);

/** The column of each resource whose records name business entities. */
export const namedColumns: ReadonlyMap<string, string> = new Map(
  [...changeSources.values()].flatMap(({ name, namedColumn }) =>
    namedColumn === undefined ? [] : [[name, namedColumn] as const],
  ),
);

/** The facts about a caller that decide which changes it sees. */
export type Reader = Pick<Caller, 'permissions' | 'scope' | 'entityId' | 'entitySince'>;

/**
 * Returns the changes that a caller may read.
 * @param named names of resources, in place of all
 * @throws {Problem} `forbidden` when the caller may not read one that is named
 */
export function visibleChanges(reader: Reader, named?: readonly string[]): ChangeFilter {
  const { permissions, scope } = reader;
  const resources = (named ?? [...changeSources.keys()]).filter(name => {
    const source = changeSources.get(name)!;
    const access = (scope === 'Self' && source.accessOfSelf) || source.access;
    if (access === 'user' || permissions.has(access)) return true;
    if (named) throw permissionMissing(access);
    return false;
  });
  return { resources, ownEntity: ownEntityOf(reader) };
}
