import {
  type Context,
  type Definition,
  defineOperation,
  type ListText,
  type NoFields,
  type Operation,
} from './operation.ts';
import type { Fields, Values } from './operation-fields.ts';

interface ListDefinition<F extends Fields, Item extends object>
  extends Omit<Definition<F>, 'effect' | 'plan' | 'run'>,
    Pick<ListText<Item>, 'wide'> {
  items(values: Values<F>, context: Context): Promise<readonly Item[]>;
  /** The columns of an item. Without it, all of its fields. */
  readonly row?: ListText<Item>['row'];
  /** Returns whether to show all columns. */
  readonly isWide?: (values: Values<F>) => boolean;
  /** The name by which other operations know an item. */
  readonly nameOf: ListText<Item>['name'];
  /** The text without any item. */
  readonly empty: string | ((values: Values<F>) => string);
}

/** Returns an operation that reads a list. */
export function defineList<const F extends Fields = NoFields, Item extends object = object>({
  items,
  row = item => item,
  wide,
  isWide,
  nameOf,
  empty,
  handling,
  ...definition
}: ListDefinition<F, Item>): Operation {
  return defineOperation<F>({
    ...definition,
    effect: 'reads',
    handling: { ...handling, result: 'list' },
    async run(values, context) {
      const text = typeof empty === 'string' ? empty : empty(values);
      const found = await items(values, context);
      context.output.list(
        found,
        { row, ...(wide && { wide }), name: nameOf, empty: text },
        isWide?.(values),
      );
    },
  });
}
