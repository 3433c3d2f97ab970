import {
  type ListContract,
  operatorsOf,
} from '../../src/lib/http/request/list-parameters/list-contract.ts';
import type { ListField } from '../../src/lib/http/request/list-parameters/list-field.ts';

type Listed = Readonly<Record<string, unknown>>;

const absentText = 'qqzqxjq';

/**
 * Returns the query of a page for every parameter that a list documents: each sort in both
 * directions, each filter with each operator, with the value of a record, with one that no
 * record has, and with all of those, and `q` of several lengths.
 * @param record of the list
 */
export function listQueries(list: ListContract, record: Listed): string[] {
  const fields = [...new Set(list.fields.values())];
  const sorts = fields
    .filter(({ isSortable }) => isSortable)
    .flatMap(({ name }) => [`sort=${name}`, `sort=-${name}`]);
  const texts = list.search
    .map(({ name }) => String(record[name] ?? ''))
    .filter(text => text !== '');
  const found = texts.flatMap(text => [text.slice(0, 1), text.slice(0, 2), text.slice(0, 3), text]);
  const searches = [...new Set([...found, 'j', 'zq', 'er', '-5', 'the', absentText])].map(
    text => `q=${encode(text)}`,
  );
  return [...sorts, ...fields.flatMap(field => filtersBy(field, record[field.name])), ...searches];
}

function filtersBy(field: ListField, value: unknown): string[] {
  const present = value === null ? exampleOf(field) : String(value);
  const operands = [present, ...absentOf(field)];
  const equal = operands.map(operand => `filter[${field.name}]=${encode(operand)}`);
  const absent = equal.slice(1).join('&');
  const others = operatorsOf(field).flatMap(operator => {
    if (operator === 'null') {
      return [true, false].map(flag => `filter[${field.name}][null]=${flag}`);
    }
    if (operator === 'orNull') {
      return equal.map(each => `${each}&filter[${field.name}][orNull]=true`);
    }
    const part = operator === 'prefix' || operator === 'contains' ? present.slice(0, 4) : present;
    return [part, ...absentOf(field)].map(
      operand => `filter[${field.name}][${operator}]=${encode(operand)}`,
    );
  });
  return [...new Set([...equal, absent, ...others])];
}

function exampleOf({ kind, values: [choice = ''] }: ListField): string {
  if (kind === 'choice') return choice;
  if (kind === 'boolean') return 'true';
  if (kind === 'timestamp') return '2026-01-31T12:00:00Z';
  return kind === 'text' ? absentText : '1';
}

function absentOf({ kind, values }: ListField): readonly string[] {
  if (kind === 'text') return [absentText];
  if (kind === 'choice') return values;
  if (kind === 'boolean') return ['true', 'false'];
  if (kind === 'timestamp') return ['1990-01-01T00:00:00Z', '2190-01-01T00:00:00Z'];
  if (kind === 'uuid') return ['00000000-0000-4000-8000-000000000000'];
  return ['-7', '2000000001'];
}

const encode = (text: string): string => encodeURIComponent(text);
