import type { EntityClass } from '@mikro-orm/postgresql';
import type { z } from 'zod';
import type { RowValues } from '../../../lib/postgres/statement.ts';
import { TableStatements } from '../../../lib/postgres/table-statements.ts';
import type { ProblemCode } from '../../../lib/problems.ts';
import { pascalCase } from '../../../lib/runtime/casing.ts';
import type { FieldErrors } from '../../../lib/runtime/field-error.ts';
import { describeContract } from './field-descriptions.ts';
import type { References, Referrer } from './references.ts';
import type { CommonOptions, ResourceOptions } from './resource-options.ts';

/**
 * The data that all route builders of a resource use: its options and its table. The options do
 * not carry the type of the entity: the compiler has checked in `defineResource` that entity,
 * view and contracts agree, and from there on a row is an object of values.
 */
export interface ResourceDefinition extends CommonOptions {
  readonly entity: EntityClass<object>;
  readonly key: { id: number } | { code: string };
  readonly lookup?: { property: string; param: string };
  /** The property with the unique code, if there is one. */
  readonly unique?: string | undefined;
  readonly orderBy: Readonly<Record<string, 'asc' | 'desc'>>;
  readonly view: z.ZodObject;
  readonly create: z.ZodObject;
  readonly example: Record<string, unknown>;
  readonly replacement?: Record<string, unknown>;
  readonly references?: References;
  /** The kinds of records that may refer to one of these. */
  readonly referrers: Referrer[];
  readonly scopedBy?: string;
  readonly namesEntities?: string;
  readonly search: readonly string[];
  readonly computed?: readonly string[];
  /** The fields of the view that are read from other records: see `Route.volatile`. */
  readonly volatile: readonly string[];
  readonly longTexts?: readonly string[];
  readonly rules?: (record: RowValues) => FieldErrors;
  readonly table: TableStatements;
  /** The path of one record. */
  readonly recordPath: string;
  /**
   * True when responses are the same for every caller of scope `All`, and of every scope without
   * `namesEntities`, and may come from the cache. The view then must read no other table: only
   * writes of this resource drop its responses.
   */
  readonly isCached: boolean;
}

/** @throws when `options.entity` is not an entity of MikroORM */
export function createDefinition<
  Row extends object,
  View extends z.ZodObject,
  Create extends z.ZodObject,
>(options: ResourceOptions<Row, View, Create>): ResourceDefinition {
  const { name, path, key, scopedBy, fields, computed = [] } = options;
  const entity = options.entity as EntityClass<object>;
  const describe = (schema: unknown): z.ZodObject =>
    describeContract(schema as z.ZodObject, fields);
  const view = describe(options.view).meta({ title: name });

  return {
    ...(options as unknown as ResourceDefinition),
    view,
    create: describe(options.create).meta({ title: `${name}Body` }),
    referrers: [...(options.referrers ?? [])],
    table: new TableStatements(entity, view),
    unique: options.unique ?? options.lookup?.property,
    volatile: computed.map(pascalCase),
    recordPath: 'id' in key ? `${path}/:id` : `${path}/code/:code`,
    isCached: !scopedBy,
  };
}

/** The path of the record with a key: an id or a code. */
export function hrefOf(
  { recordPath }: Pick<ResourceDefinition, 'recordPath'>,
  key: unknown,
): string {
  return recordPath.replace(/:\w+$/, encodeURIComponent(String(key)));
}

/**
 * The options that every route of a resource has: its documentation, and the fields that are no
 * part of the version of a record.
 */
export function commonOf({ name, path, key, description, volatile }: ResourceDefinition) {
  if ('id' in key) return { tag: name, description, volatile };
  const replaced = `\`PUT ${path}\` replaces the record with the \`${pascalCase(key.code)}\` of its body`;
  const replacing = `${description} ${replaced}; its own path has no PUT.`;
  return { tag: name, description: replacing, volatile };
}

/**
 * The problems of a change of a record, for the documentation.
 * @param change the verb of the route
 */
export function changeProblems(
  { key, onMissing, paged, unique, softDelete, isReferenced }: ResourceDefinition,
  change: 'create' | 'update' | 'delete' | 'undelete',
): ProblemCode[] {
  const setsCode = change === 'create' || (change === 'update' && 'id' in key);
  return [
    ...(change === 'create' ? [] : [onMissing]),
    ...(change !== 'delete' && !paged ? (['limit_reached'] as const) : []),
    ...(setsCode && unique ? (['duplicate'] as const) : []),
    ...(change === 'delete' && (!softDelete || isReferenced) ? (['in_use'] as const) : []),
  ];
}
