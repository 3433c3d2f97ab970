import type { EntityClass, QueryOrderMap } from '@mikro-orm/postgresql';
import type { z } from 'zod';
import type { Permission } from '../../../control/permissions.ts';
import type { FieldErrors } from '../../../lib/runtime/field-error.ts';
import type { TenantRoute } from '../../../tenancy/define-route.ts';
import type { RequestContext } from '../../../tenancy/request-context.ts';
import type { FieldDescriptions } from './field-descriptions.ts';
import type { Reference, Referrer } from './references.ts';

/** The options that do not depend on the type of the entity. */
export interface CommonOptions {
  /** Names one record in the documentation and in audit entries. */
  name: string;
  path: string;
  description: string;
  access: {
    read: Permission | 'user';
    /**
     * The permission that a caller of scope `Self` needs to read, where `read` is `user`: the
     * records concern the whole company.
     */
    readOfSelf?: Permission;
    write: Permission;
  };
  /**
   * The list is served in pages and may be empty. Other lists are complete, and an empty one is
   * a 404.
   */
  paged?: boolean;
  /**
   * The problem of PUT and DELETE when the record does not exist: `not_found` is a 404,
   * `unknown_record` a 400.
   */
  onMissing: 'not_found' | 'unknown_record';
  /**
   * Records have PATCH. Otherwise PATCH is a 405, and a record is only replaced as a whole, by
   * PUT.
   */
  takesPatch?: boolean;
  /** PUT changes only the fields that are sent, as PATCH does. */
  putsPart?: boolean;
  /** DELETE marks the row and keeps it. The entity has `isDeleted` and `deletedAt`. */
  softDelete?: boolean;
  /**
   * True when something without a foreign key refers to the record, which is locked; DELETE
   * then refuses with `in_use`.
   */
  isReferenced?: (id: number, context: RequestContext) => Promise<boolean>;
  /** The kinds of records that may refer to one, beside those of resources with `references`. */
  referrers?: readonly Referrer[];
  /** Endpoints of this resource beside the standard ones. */
  extraRoutes?: TenantRoute[];
}

/** A resource: its table, its contracts, and how it differs from other resources. */
export interface ResourceOptions<
  Row extends object,
  View extends z.ZodObject,
  Create extends z.ZodObject,
> extends CommonOptions {
  entity: EntityClass<Row>;
  /**
   * The key by which PUT and DELETE find a record: by the numeric id in the path (`id` is the
   * largest value that the column holds), or by a code, which PUT takes from the body and
   * DELETE from the path.
   */
  key: { id: number } | { code: keyof Row & string };
  /** The property that `GET …/code/{param}` searches, without regard to letter case. */
  lookup?: { property: keyof Row & string; param: string };
  /** The property with the code that no two records share, if `lookup` does not name it. */
  unique?: keyof Row & string;
  orderBy: QueryOrderMap<Row>;
  /** The properties that the list parameter `q` searches: codes and names. */
  search: readonly (keyof Row & string)[];
  /**
   * The properties that are read from other records. A change of those is no change of this
   * record: `If-Match` does not compare these fields. A list that is sorted or filtered by them
   * is read alone.
   */
  computed?: readonly (keyof Row & string)[];
  /** The properties with texts of up to 4,000 characters. The list cannot be sorted by them. */
  longTexts?: readonly (keyof Row & string)[];
  /** The fields of a response, in their order. Each is a property of the entity. */
  view: ViewOf<Row, View>;
  /** The fields that POST accepts. */
  create: ContractOf<Row, Create>;
  /**
   * The meaning of each field, in a sentence; fields such as `Id` have a description already.
   */
  fields: FieldDescriptions<View, Create>;
  /** A body of POST for the documentation: of a record that the demo tenant does not have. */
  example: z.input<Create>;
  /**
   * A body of PUT for the documentation, if records have codes: that of the first record of the
   * demo tenant.
   */
  replacement?: z.input<Create>;
  /**
   * The properties with the key of another record, or with a list of keys. A record is written
   * only if those that it names exist.
   */
  references?: Readonly<Partial<Record<keyof Row & string, Reference>>>;
  /**
   * The property with the id of the owning business entity: a caller of scope `Self` reaches
   * only its own records.
   */
  scopedBy?: keyof Row & string;
  /**
   * The property with the ids of business entities that a record names: a caller of scope `Self`
   * reads what `isForEntity` says, and changes no record, because a full PUT of what it sees
   * would remove the other ids.
   */
  namesEntities?: keyof Row & string;
  /**
   * Returns the errors of fields that do not agree with each other, all of them. A field that the
   * contract refuses is undefined.
   */
  rules?: (record: Partial<Row>) => FieldErrors;
}

/**
 * The type of a view whose fields all agree with the entity: each field is a property of the
 * entity and accepts every value of it. For any other view, an object type that no view
 * matches. Its keys name the fields that disagree, so that the compiler prints them.
 */
type ViewOf<Row, View extends z.ZodObject> = [UnreadableFields<Row, View>] extends [never]
  ? View
  : {
      [Field in UnreadableFields<
        Row,
        View
      > as `the view does not agree with the entity in ${Field}`]: never;
    };

/**
 * The type of a contract whose fields all agree with the entity: each field is a property of
 * the entity, which takes every value of the field. For any other contract, an object type as
 * in `ViewOf`.
 */
type ContractOf<Row, Contract extends z.ZodObject> = [UnwritableFields<Row, Contract>] extends [
  never,
]
  ? Contract
  : {
      [Field in UnwritableFields<
        Row,
        Contract
      > as `the contract does not agree with the entity in ${Field}`]: never;
    };

type UnreadableFields<Row, View extends z.ZodObject> = {
  [Field in keyof z.input<View> & string]-?: Field extends keyof Stored<Row>
    ? Stored<Row>[Field] extends z.input<View>[Field]
      ? never
      : Field
    : Field;
}[keyof z.input<View> & string];

type UnwritableFields<Row, Contract extends z.ZodObject> = {
  [Field in keyof z.output<Contract> & string]-?: Field extends keyof Writable<Row>
    ? z.output<Contract>[Field] extends Writable<Row>[Field] | undefined
      ? never
      : Field
    : Field;
}[keyof z.output<Contract> & string];

/**
 * The properties of an entity as JSON has them: names in PascalCase, dates as ISO 8601 strings.
 */
type Stored<Row> = {
  [Key in keyof Row & string as Capitalize<Key>]: Row[Key] extends Date
    ? string
    : Row[Key] extends Date | null | undefined
      ? string | null
      : Exclude<Row[Key], undefined>;
};

/** The properties of an entity under the names of a contract. */
type Writable<Row> = { [Key in keyof Row & string as Capitalize<Key>]: Row[Key] };
