import type { FieldError, FieldErrors } from '../../../runtime/field-error.ts';
import { type ListContract, type Operator, operatorsOf, takesFlag } from './list-contract.ts';
import { type FieldValue, type ListField, readChoice, readValue } from './list-field.ts';

/** A condition on a field: one value, or for equality any of several. */
export interface Filter {
  readonly field: ListField;
  readonly operator: Operator;
  readonly values: readonly string[];
}

/**
 * True for `filter[…]`, and for every name that looks as if it was meant as one: `filter`,
 * `Filter[Name]`, `filter.Name`, `filters[Name]`, `$filter` of OData. It is refused by its name:
 * a list without the filter would be taken for the result. `filtered` is another word.
 */
export function isFilterParameter(name: string): boolean {
  return /(^|[^a-z0-9])filters?([^a-z0-9]|$)|filters?\[/i.test(name);
}

/**
 * Reads the filters of a list.
 * @param errors gets an entry for each invalid filter; the result then must not be used
 */
export function readFilters(
  { fields }: ListContract,
  search: URLSearchParams,
  errors: FieldErrors,
): Filter[] {
  const filters = new Map<string, { field: ListField; operator: Operator; values: string[] }>();

  for (const [parameter, text] of search) {
    if (!isFilterParameter(parameter)) continue;

    const { name, operatorName } = partsOf(parameter);
    const field = fields.get(name);
    const operator = field && findOperator(field, operatorName);
    const read: FieldValue = field
      ? readOperand(field, operator, text)
      : { error: name === '' ? malformedFilter : unknownField };
    if (!field || !operator || read.error) {
      errors[parameter] ??= [read.error ?? unknownField];
      continue;
    }

    const id = `${field.name} ${operator}`;
    const filter = filters.get(id) ?? { field, operator, values: [] };
    filters.set(id, filter);
    filter.values.push(read.value);

    if (operator !== 'equal' && filter.values.length > 1) {
      errors[parameter] ??= [{ message: 'must be given once', code: 'ambiguous' }];
    }
  }

  if (Object.keys(errors).length === 0) refuseNullAlone([...filters.values()], errors);

  // In one order, so that a cursor counts for the same filters in any order.
  return [...filters].sort(([one], [other]) => (one < other ? -1 : 1)).map(([, filter]) => filter);
}

/**
 * Returns the parts of `filter[Name]` and `filter[Name][operator]`. The names that programs give
 * to the items of a list, `filter[Name][]` and `filter[Name][0]`, are equality: each of them is
 * one of the values.
 */
function partsOf(parameter: string): { name: string; operatorName: string | undefined } {
  const [, name = '', operatorName] =
    /^filter\[(\w+)\](?:\[(?:\d*|(\w+))\])?$/.exec(parameter) ?? [];

  return { name, operatorName };
}

/**
 * Refuses `orNull` without a filter of the same field, which it would extend, and beside `null`,
 * which it would contradict.
 */
function refuseNullAlone(filters: readonly Filter[], errors: FieldErrors): void {
  for (const { field, operator } of filters) {
    if (operator !== 'orNull') continue;

    const others = filters.filter(each => each.field === field && each.operator !== 'orNull');
    if (others.length === 0 || others.some(each => each.operator === 'null')) {
      errors[`filter[${field.name}][orNull]`] ??= [nullAlone];
    }
  }
}

const nullAlone: FieldError = {
  message:
    'needs a filter of the same field beside it, such as gte or a value, and not null: send ' +
    'null=true alone for the records without a value',
  code: 'ambiguous',
};

const malformedFilter: FieldError = {
  message:
    'is no filter: send filter[Field]=value, once for each value, or filter[Field][operator]=value',
  code: 'unknown',
};

const unknownField: FieldError = {
  message: 'names no field that this list can be filtered by',
  code: 'unknown',
};

/** @param operatorName the name in the second brackets; equality has none */
function findOperator(field: ListField, operatorName: string | undefined): Operator | undefined {
  if (operatorName === undefined) return 'equal';
  return operatorsOf(field).find(operator => operator === operatorName);
}

/** @param operator undefined for a name that is none of the field */
function readOperand(field: ListField, operator: Operator | undefined, text: string): FieldValue {
  if (operator === undefined) {
    const allowed = operatorsOf(field);
    const message =
      allowed.length > 0
        ? `has no such operator, only ${allowed.join(', ')}, and none for equality`
        : 'has no operator: only equality';
    return { error: { message, code: 'unknown', values: allowed } };
  }
  if (takesFlag(operator)) return readChoice(text, ['true', 'false']);

  return readValue(field, text, operator !== 'equal');
}
