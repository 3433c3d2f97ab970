import {
  type Include,
  type ListContract,
  operatorsOf,
  sortableNames,
  takesFlag,
} from '../../lib/http/request/list-parameters/list-contract.ts';
import type {
  ListField,
  ListFieldKind,
} from '../../lib/http/request/list-parameters/list-field.ts';
import { maxOffset } from '../../lib/http/request/list-parameters/list-query.ts';
import type { TenantRoute } from '../../tenancy/define-route.ts';
import type { Json } from './openapi-schemas.ts';

/**
 * The parameters that a list takes beside those of its own: `limit`, `after`, `sort`, `q`,
 * `filter` and its operators.
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
    equalityParameter(fields),
    ...fields.filter(field => operatorsOf(field).length > 0).map(operators),
  ];
}

const inQuery = { in: 'query', required: false };

const limitParameter = {
  name: 'limit',
  ...inQuery,
  description: 'The maximum number of records in a page. A value above 1,000 counts as 1,000.',
  schema: { type: 'integer', minimum: 1 },
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

const offsetParameter = {
  name: 'offset',
  ...inQuery,
  description:
    'The number of records before the page, for tables with page numbers. A program that reads ' +
    'the whole list follows `Link` in its place, whose cursor has no bound. Not beside `after`.',
  schema: { type: 'integer', minimum: 0, maximum: maxOffset, default: 0 },
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

function equalityParameter(fields: ListField[]): Json {
  const [first] = fields;
  const properties = Object.fromEntries(
    fields.map(field => [field.name, oneOrMore(valueSchema(field))]),
  );

  return {
    name: 'filter',
    ...inQuery,
    description:
      'Return only records with this value in a field: `filter[Field]=value`. Repeated for ' +
      'one field, any of the values: `filter[Field]=one&filter[Field]=other`. A list of ids has ' +
      'the value among them.',
    style: 'deepObject',
    explode: true,
    schema: { type: 'object', properties, additionalProperties: false },
    examples: {
      none: { value: {} },
      one: { value: first ? { [first.name]: kinds[first.kind][1] } : {} },
    },
  };
}

function operators(field: ListField): Json {
  const names = operatorsOf(field);
  const properties = Object.fromEntries(
    names.map(name => [name, takesFlag(name) ? { type: 'boolean' } : valueSchema(field)]),
  );

  return {
    name: `filter[${field.name}]`,
    ...inQuery,
    description:
      `Return only records whose \`${field.name}\` compares so: ` +
      `${names.map(name => `\`filter[${field.name}][${name}]=…\``).join(', ')}.` +
      (field.isNullable
        ? ' `orNull=true` beside another one adds the records without a value.'
        : ''),
    style: 'deepObject',
    explode: true,
    schema: { type: 'object', properties, additionalProperties: false },
    examples: { none: { value: {} } },
  };
}

/** The schema of the values of a field, and one of them. */
const kinds: Record<ListFieldKind, readonly [schema: Json, example: unknown]> = {
  text: [{ type: 'string' }, 'EUR'],
  code: [{ type: 'string' }, 'EUR'],
  email: [{ type: 'string' }, 'nora@example.com'],
  choice: [{ type: 'string' }, 'EUR'],
  integer: [{ type: 'integer' }, 1],
  decimal: [{ type: 'number' }, 20],
  boolean: [{ type: 'boolean' }, true],
  timestamp: [
    {
      description: 'A time, or a date alone: that day in UTC.',
      anyOf: [
        { type: 'string', format: 'date-time' },
        { type: 'string', format: 'date' },
      ],
    },
    '2026-01-31T12:00:00Z',
  ],
  uuid: [{ type: 'string', format: 'uuid' }, '0f7c1d3e-5b7a-4c59-9d0e-6a1f2b3c4d5e'],
};

/** Several values of a field are sent as a parameter each, for which OpenAPI has no style. */
function oneOrMore(value: Json): Json {
  return { anyOf: [value, { type: 'array', items: value, minItems: 1 }] };
}

function valueSchema({ kind, values }: ListField): Json {
  return { ...kinds[kind][0], ...(kind === 'choice' && { enum: values }) };
}
