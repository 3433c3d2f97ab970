import type { z } from 'zod';

/**
 * The type of a view whose fields all agree with the entity: each field is a property of the entity and accepts every
 * value of it. For any other view, an object type that no view matches. Its keys name the fields that disagree, so that
 * the compiler prints them.
 */
export type ViewOf<Row, View extends z.ZodObject> = [UnreadableFields<Row, View>] extends [never]
  ? View
  : { [Field in UnreadableFields<Row, View> as `the view does not agree with the entity in ${Field}`]: never };

/**
 * The type of a contract whose fields all agree with the entity: each field is a property of the entity, which takes
 * every value of the field. For any other contract, an object type as in `ViewOf`.
 */
export type ContractOf<Row, Contract extends z.ZodObject> = [UnwritableFields<Row, Contract>] extends [never]
  ? Contract
  : { [Field in UnwritableFields<Row, Contract> as `the contract does not agree with the entity in ${Field}`]: never };

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

/** The properties of an entity as JSON has them: names in PascalCase, dates as ISO 8601 strings. */
type Stored<Row> = {
  [Key in keyof Row & string as Capitalize<Key>]: Row[Key] extends Date
    ? string
    : Row[Key] extends Date | null | undefined
      ? string | null
      : Exclude<Row[Key], undefined>;
};

/** The properties of an entity under the names of a contract. */
type Writable<Row> = { [Key in keyof Row & string as Capitalize<Key>]: Row[Key] };
