import type { EntityClass, EntityManager, QueryOrderMap } from '@mikro-orm/postgresql';
import type { z } from 'zod';
import type { Permission } from '../control/permissions.ts';
import type { TenantRoute } from '../tenancy/define-route.ts';
import type { RequestContext } from '../tenancy/request-context.ts';

/** What is stored, as it is written on the wire: names in PascalCase, moments as ISO-8601. */
type Stored<Row> = {
  [Key in keyof Row & string as Capitalize<Key>]: Row[Key] extends Date
    ? string
    : Row[Key] extends Date | null | undefined
      ? string | null
      : Exclude<Row[Key], undefined>;
};

/** A contract or view that the entity does not agree with is an error at compile time. */
type Reads<Row, View extends z.ZodObject> = Stored<Row> extends z.input<View> ? View : never;
type Writes<Row, Contract extends z.ZodObject> =
  z.output<Contract> extends Partial<{ [Key in keyof Row & string as Capitalize<Key>]: Row[Key] | undefined }>
    ? Contract
    : never;

/** A resource: its table, its contract, and what it does otherwise than the others. */
export interface ResourceOptions<
  Row extends object,
  View extends z.ZodObject,
  Create extends z.ZodObject,
  Update extends z.ZodObject,
> {
  /** One record, in documentation and audit entries. */
  name: string;
  path: string;
  description: string;
  entity: EntityClass<Row>;
  /**
   * How PUT and DELETE find a record: by the numeric id in the path (with the largest id that the column holds), or by a
   * code (in the body of PUT, in the path of DELETE).
   */
  key: { id: number } | { code: keyof Row & string };
  /** The property that `GET …/code/{param}` looks in; letter case does not count. */
  lookup?: { property: keyof Row & string; param: string };
  access: { read: Permission | 'user'; write: Permission };
  orderBy: QueryOrderMap<Row>;
  /** The list comes in pages and may be empty; other lists are whole, and 404 when there is nothing. */
  paged?: boolean;
  /** What leaves, in this order; every name is a property of the entity. */
  view: Reads<Row, View>;
  /** What POST takes. */
  create: Writes<Row, Create>;
  /** A body for the documentation. */
  example: z.input<Create>;
  /** What PUT takes when it changes only what is sent; without it, PUT takes all that POST does. */
  update?: Writes<Row, Update>;
  /** How PUT and DELETE answer when there is no such record. */
  onMissing: 'not_found' | 'unknown_record';
  /** DELETE keeps the row and marks it; the entity has `isDeleted` and `deletedAt`. */
  softDelete?: boolean;
  /** The property with the business entity that a record belongs to: callers of scope `Self` reach only their own. */
  scopedBy?: keyof Row & string;
  /**
   * The readiness check, against the data, before a record is written: references, rules across fields. Throws a problem.
   * `before` is the record as it was; a reference that stays as it is, is not looked at again.
   */
  validate?: (record: Row, em: EntityManager, before: Partial<Row>) => Promise<void>;
  /** Whether something that no foreign key of the database knows of refers to the record, which then stays. */
  isReferenced?: (id: number, context: RequestContext) => Promise<boolean>;
  /** Endpoints of this resource beside the usual ones. */
  extraRoutes?: TenantRoute[];
}
