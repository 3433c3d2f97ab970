import { z } from 'zod';
import { camelCase } from '../../../runtime/casing.ts';
import { schemaOf } from '../../schema-of.ts';
import { type ListField, type ListFieldKind, listField } from './list-field.ts';

export interface SortKey {
  readonly field: ListField;
  readonly direction: 'asc' | 'desc';
}

/**
 * The parameters that clients may send to a list: how it may be sorted, filtered, searched and
 * paged.
 */
export interface ListContract {
  /** The fields of the view that filters may name, by name and by camelCase spelling. */
  readonly fields: ReadonlyMap<string, ListField>;
  /**
   * The order of the list without `sort`. Ends with the key, so that no two records are equal
   * in it.
   */
  readonly order: readonly SortKey[];
  /** The names of all fields of the view, in their order: the header of an export. */
  readonly columns: readonly string[];
  /** The field that no two records share. */
  readonly key: ListField;
  /** The fields that `q` searches. */
  readonly search: readonly ListField[];
  /** True if the fields of `search` have trigram indexes where the server has the extension. */
  readonly hasTrigrams: boolean;
  /** The fields that a record has beyond its view if the parameter `include` asks for them. */
  readonly includes: readonly Include[];
  /** The `volatile` of the route that reads one record, for its `ETag`. */
  readonly volatile: readonly string[];
  /** The parameters that the list has without `sort`, `filter`, `q` and a cursor. */
  readonly query: z.ZodObject;
  /** `query` without `limit` and `after`. */
  readonly otherParameters: z.ZodObject;
}

/**
 * A value beside each record: its `ETag`, or the name of the user that its `UserId` stands for.
 */
export type Include = 'etag' | 'user';

interface ListOptions {
  view: z.ZodObject;
  /**
   * The parameters of the plain list. If `limit` is among them, the plain list has pages itself,
   * and a request with `limit` alone is one for the plain list.
   */
  query?: z.ZodObject | undefined;
  /** The direction of each field that orders the plain list. */
  order: Readonly<Record<string, 'asc' | 'desc'>>;
  key: string;
  /** The fields that `q` searches: codes and names. */
  search: readonly string[];
  /**
   * Default: true if the plain list is paged, as those of large tables in tenant databases are.
   */
  hasTrigrams?: boolean;
  /**
   * The fields that are read from another table: no index serves a sort or a filter by them.
   */
  computed?: readonly string[] | undefined;
  /**
   * The fields with long texts, which the list cannot be sorted by: a cursor holds the values
   * of the sorted fields.
   */
  longTexts?: readonly string[] | undefined;
  /**
   * The values that filters of a text may have: others would find nothing, as if there were no
   * such record.
   */
  choices?: Readonly<Record<string, readonly string[]>>;
  includes?: readonly Include[];
  volatile?: readonly string[];
}

/** @throws when an option names a field that is not in the view, or that has no order */
export function listContract(options: ListOptions): ListContract {
  const {
    view,
    query = z.object({}),
    order,
    key,
    search,
    computed = [],
    longTexts = [],
    choices = {},
    includes = [],
    volatile = [],
  } = options;
  const { hasTrigrams = Object.hasOwn(query.shape, 'limit') } = options;

  const fields = new Map<string, ListField>();
  for (const [name, schema] of Object.entries(view.shape)) {
    const isComputed = computed.includes(name);
    const field = listField(name, schemaOf(schema), {
      isSortable: !longTexts.includes(name),
      isComputed,
    });
    if (!field) continue;

    const values = choices[name];
    const filtered = values ? { ...field, kind: 'choice' as const, values } : field;
    fields.set(name, filtered);
    fields.set(camelCase(name), filtered);
  }

  const named = (name: string): ListField => {
    const field = fields.get(name);
    if (!field) throw new Error(`the list has no field ${name}`);
    return field;
  };

  const keys = Object.entries(order).map(([name, direction]) => ({
    field: named(name),
    direction,
  }));

  return {
    fields,
    columns: Object.keys(view.shape),
    order: withKey(keys, named(key)),
    key: named(key),
    search: search.map(named),
    hasTrigrams,
    includes,
    volatile,
    query,
    otherParameters: z.object(
      Object.fromEntries(
        Object.entries(query.shape).filter(([name]) => name !== 'limit' && name !== 'after'),
      ),
    ),
  };
}

/**
 * Adds the key in the direction of the last field, so that one index serves the field in both
 * directions.
 */
export function withKey(keys: readonly SortKey[], key: ListField): SortKey[] {
  if (keys.some(({ field }) => field === key)) return [...keys];
  return [...keys, { field: key, direction: keys.at(-1)?.direction ?? 'asc' }];
}

const comparisons = ['gte', 'lte', 'gt', 'lt'] as const;
export type Operator =
  | 'equal'
  | (typeof comparisons)[number]
  | 'prefix'
  | 'contains'
  | 'null'
  | 'orNull';

const operatorsOfKind: Record<ListFieldKind, readonly Operator[]> = {
  text: [...comparisons, 'prefix', 'contains'],
  code: [...comparisons, 'prefix', 'contains'],
  email: [...comparisons, 'prefix', 'contains'],
  integer: comparisons,
  decimal: comparisons,
  timestamp: comparisons,
  boolean: [],
  choice: [],
  uuid: [],
};

/** The operators of a filter by a field, beside equality. */
export function operatorsOf({ kind, isNullable, isList }: ListField): readonly Operator[] {
  const own = isList ? [] : operatorsOfKind[kind];
  return isNullable ? [...own, 'null', 'orNull'] : own;
}

/** True for an operator whose value is `true` or `false`, whatever the field. */
export function takesFlag(operator: Operator): boolean {
  return operator === 'null' || operator === 'orNull';
}

/** The names of the fields that a list can be sorted by. */
export function sortableNames({ fields }: ListContract): string[] {
  return [...new Set(fields.values())]
    .filter(({ isSortable }) => isSortable)
    .map(({ name }) => name);
}
