import { maxInt32 } from '../../lib/http/request/fields.ts';
import {
  type Include,
  type ListContract,
  type Operator,
  operatorsOf,
  sortableNames,
  takesFlag,
} from '../../lib/http/request/list-parameters/list-contract.ts';
import type { ListField } from '../../lib/http/request/list-parameters/list-field.ts';
import { maxOffset } from '../../lib/http/request/list-parameters/list-query.ts';
import type { TenantRoute } from '../../tenancy/define-route.ts';
import { type Json, toSchema } from './openapi-schemas.ts';

/**
 * The parameters that a list takes beside those of its own: `limit`, `after`, `sort`, `q`,
 * and one for each filter.
 */
export function listParameters({ list }: TenantRoute): Json[] {
  if (!list) return [];

  const own = new Set(Object.keys(list.query.shape));
  const fields = [...new Set(list.fields.values())];
  const paging = [limitParameter, afterParameter, offsetParameter].filter(
    ({ name }) => !own.has(name),
  );

  return [
    ...paging,
    sortParameter(list),
    searchParameter(list),
    bomParameter,
    ...includeParameter(list),
    ...fields.flatMap(filterParameters),
  ];
}

const inQuery = { in: 'query', required: false };

const limitParameter = {
  name: 'limit',
  ...inQuery,
  description: 'The maximum number of records in a page. A value above 1,000 counts as 1,000.',
  schema: { type: 'integer', format: 'int32', minimum: 1, maximum: maxInt32 },
};

const afterParameter = {
  name: 'after',
  ...inQuery,
  description:
    'The cursor of the next page, as in the `Link` header of the page before: for the same ' +
    'sort and filters. Later, records may have appeared behind it: to receive what is new, ' +
    'read `GET /api/v1/Changes`.',
  schema: { type: 'string' },
};

// It has no default: with `offset`, also 0, a response has a `Link` and is no plain list, and
// some generated clients send each default.
const offsetParameter = {
  name: 'offset',
  ...inQuery,
  description:
    'The number of records before the page, for tables with page numbers. A program that reads ' +
    'the whole list follows `Link` in its place, whose cursor has no bound. Beside `after`, only 0.',
  schema: { type: 'integer', format: 'int32', minimum: 0, maximum: maxOffset },
};

const bomParameter = {
  name: 'bom',
  ...inQuery,
  description:
    'Whether CSV begins with a byte order mark, by which spreadsheets recognise UTF-8. JSON ' +
    'ignores it.',
  schema: { type: 'boolean', default: false },
};

const included: Record<Include, string> = {
  etag: '`etag` adds `ETag`, the tag that a read of the record has, to each record.',
  user: '`user` adds `UserName`, the name of the user that `UserId` stands for, to each record.',
};

function includeParameter({ includes }: ListContract): Json[] {
  if (includes.length === 0) return [];
  const description =
    'What the records have beside their fields: ' +
    `${includes.map(each => included[each]).join(' ')} CSV ignores it.`;
  const schema = { type: 'array', items: { type: 'string', enum: includes } };
  return [{ name: 'include', ...inQuery, description, style: 'form', explode: false, schema }];
}

function sortParameter(list: ListContract): Json {
  const names = sortableNames(list);
  const [first = '', second = first] = names;

  return {
    name: 'sort',
    ...inQuery,
    description: `Fields in the order of their weight, descending with \`-\`: of ${names.join(', ')}. Repeated, it means the same as with commas.`,
    style: 'form',
    explode: false,
    schema: {
      type: 'array',
      items: { type: 'string', enum: names.flatMap(name => [name, `-${name}`]) },
    },
    examples: { ascending: { value: [first] }, descending: { value: [`-${second}`] } },
  };
}

function searchParameter({ search }: ListContract): Json {
  const names = search.map(({ name }) => `\`${name}\``).join(' or ');
  const description = `Return only records that have each word of this text in ${names}, in any letter case and order.`;
  return { name: 'q', ...inQuery, description, schema: { type: 'string' } };
}

/**
 * The parameters of the filters by a field: one for each name that a request may have. Of a list
 * in an object, each program that reads the document would make something else.
 */
function filterParameters(field: ListField): Json[] {
  const name = `filter[${field.name}]`;
  const equality = {
    name,
    ...inQuery,
    description: meanings.equal(field),
    style: 'form',
    explode: true,
    schema: { type: 'array', items: valueSchema(field) },
  };

  const others = operatorsOf(field).map(operator => ({
    name: `${name}[${operator}]`,
    ...inQuery,
    description: meanings[operator](field),
    schema: takesFlag(operator) ? { type: 'boolean' } : valueSchema(field),
  }));

  return [equality, ...others];
}

/** The records that a filter by a field finds, by its operator. */
const meanings: Readonly<Record<Operator, (field: ListField) => string>> = {
  equal: ({ name, isList }) =>
    isList
      ? `Only records that have this value, or any of several, among their \`${name}\`.`
      : `Only records with this \`${name}\`, or with any of several.`,
  gte: ({ name }) => `Only records whose \`${name}\` is this value or a greater one.`,
  lte: ({ name }) => `Only records whose \`${name}\` is this value or a smaller one.`,
  gt: ({ name }) => `Only records whose \`${name}\` is greater than this value.`,
  lt: ({ name }) => `Only records whose \`${name}\` is smaller than this value.`,
  prefix: ({ name }) => `Only records whose \`${name}\` begins with this text, in any letter case.`,
  contains: ({ name }) =>
    `Only records whose \`${name}\` has this text somewhere, in any letter case.`,
  null: ({ name }) =>
    `With \`true\`, only records without a value in \`${name}\`; with \`false\`, only those with one.`,
  orNull: ({ name }) =>
    `With \`true\`, beside another filter by \`${name}\`: also the records without a value in it.`,
};

/** The schema of the values of a filter: that of the field, or a choice of the list. */
function valueSchema({ kind, values, schema }: ListField): Json {
  if (kind === 'choice') return { type: 'string', enum: values };
  if (kind === 'timestamp') return timeOrDay;

  const { title, description, ...rest } = toSchema(schema, 'output');
  return rest;
}

const timeOrDay = {
  description: 'A time, or a date alone: that day in UTC.',
  anyOf: [
    { type: 'string', format: 'date-time' },
    { type: 'string', format: 'date' },
  ],
};
