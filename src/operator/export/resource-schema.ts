import type pg from 'pg';
import { quoteIdentifier } from '../../postgres/quote.ts';
import { identityTables, listDataTables } from '../schema/tenant-tables.ts';

/** What JSON Schema says of the values of a PostgreSQL type, as `row_to_json` writes them. */
const jsonTypes: Record<string, object> = {
  bool: { type: 'boolean' },
  int2: { type: 'integer' },
  int4: { type: 'integer' },
  int8: { type: 'integer' },
  numeric: { type: 'number' },
  float4: { type: 'number' },
  float8: { type: 'number' },
  uuid: { type: 'string', format: 'uuid' },
  date: { type: 'string', format: 'date' },
  timestamptz: { type: 'string', format: 'date-time' },
  timestamp: { type: 'string' },
  json: {},
  jsonb: {},
};

/**
 * Returns the JSON Schema (2020-12) of the rows of a query, from the types of its columns. Every value may be null.
 */
export async function resourceSchema(client: pg.Client, name: string, query: string): Promise<object> {
  const { fields } = await client.query(`select * from (${query}) as rows limit 0`);
  const { rows } = await client.query<{ oid: number; name: string; element: string | null }>(
    `select t.oid::int as oid, t.typname as name, e.typname as element
       from pg_type t left join pg_type e on e.oid = t.typelem and t.typcategory = 'A' where t.oid = any ($1::oid[])`,
    [fields.map(({ dataTypeID }) => dataTypeID)],
  );
  const types = new Map(rows.map(row => [row.oid, row]));
  const schemaOf = (oid: number): object => {
    const type = types.get(oid);
    if (type?.element)
      return { type: ['array', 'null'], items: nullable(jsonTypes[type.element] ?? { type: 'string' }) };
    return nullable(jsonTypes[type?.name ?? ''] ?? { type: 'string' });
  };
  return {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    title: name,
    type: 'object',
    properties: Object.fromEntries(fields.map(field => [field.name, schemaOf(field.dataTypeID)])),
    required: fields.map(field => field.name),
    additionalProperties: false,
  };
}

function nullable(schema: object): object {
  return 'type' in schema ? { ...schema, type: [schema.type, 'null'] } : schema;
}

/** Rows that are exported as one resource. */
export interface ExportedResource {
  readonly name: string;
  /** SQL of its rows. */
  readonly query: string;
}

/** Tables that the service uses for itself, and no data of the tenant. */
const internalTables = [...identityTables, 'table_sizes', 'idempotency_keys'];

/** Returns the tables of a tenant's database. */
export async function tableResources(client: pg.Client): Promise<ExportedResource[]> {
  const tables = await listDataTables(client, internalTables);
  return tables.map(({ name, columns }) => {
    const order = columns.includes('id') ? ' order by id' : '';
    return { name, query: `select ${columns.map(quoteIdentifier).join(', ')} from ${quoteIdentifier(name)}${order}` };
  });
}

/** Returns what the control database has of a tenant's people: no passwords, sessions or keys. */
export function peopleResources(tenantId: number): ExportedResource[] {
  const id = BigInt(tenantId);
  return [
    {
      name: 'users',
      query: `select u.id, u.guid, u.email, u.first_name, u.last_name, r.name as role, u.scope, u.entity_id, u.invited_at,
                     u.confirmed_at, u.disabled_at, u.created_at
                from users u join roles r on r.id = u.role_id where u.tenant_id = ${id} order by u.id`,
    },
    { name: 'roles', query: `select name, permissions from roles where tenant_id = ${id} order by name` },
    {
      name: 'people_audit_log',
      query: `select id, created_at, user_id, user_guid, entity_id, action, resource, record_key, before, after, ip_address
                from audit_log where tenant_id = ${id} order by id`,
    },
  ];
}
