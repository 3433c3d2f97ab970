import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { hash, verify } from '@node-rs/argon2';
import pg from 'pg';
import { listen } from './listen.ts';

/**
 * The raw-pg baseline: the fastest known way to serve PostgreSQL data with Node. Bare
 * `node:http` and `pg`, named prepared statements, timestamps read as text and sliced into ISO
 * 8601, columns named like the JSON fields. One tenant, no authentication, no audit, no checks;
 * a conditional request gets the full response; a login verifies the same Argon2 hash as on the
 * other servers.
 *
 * With `AUDITED`, the database is a copy of a tenant's, and the statement that creates a record
 * writes its audit entry, too: what a server must do at least that keeps an audit log.
 */
const connections = 10;
const timestamptz = 1184;
const decoyHash = hash('a password that no user has');

const types: pg.CustomTypesConfig = {
  getTypeParser: (oid: number, format?: 'text' | 'binary') =>
    // 2026-01-31 12:00:00.123456+00: the server's time zone is UTC
    oid === timestamptz
      ? (value: string) => `${value.slice(0, 10)}T${value.slice(11, -3)}Z`
      : pg.types.getTypeParser(oid, format as 'text'),
};

const clients = await Promise.all(
  Array.from({ length: connections }, async () => {
    const client = new pg.Client({
      connectionString: process.env.BASELINE_URL,
      application_name: 'bench-baseline',
      types,
    });
    await client.connect();
    return client;
  }),
);
let turn = 0;

const statements = {
  one: `select id as "Id", title as "Title", weighting as "Weighting", created_at as "CreatedAt"
    from entity_statuses where id = $1`,
  many: `select id as "Id", code as "Code", name as "Name", created_at as "CreatedAt"
    from units_of_measure order by code`,
  activities: `select id as "Id", created_at as "CreatedAt", activity_code as "ActivityCode", user_id as "UserId",
      comment as "Comment", entity_id as "EntityId", screen as "Screen", ip_address as "IPAddress"
    from activities order by created_at desc, id desc limit 20`,
  activity: `select id as "Id", created_at as "CreatedAt", activity_code as "ActivityCode", user_id as "UserId",
      comment as "Comment", entity_id as "EntityId", screen as "Screen", ip_address as "IPAddress"
    from activities where id = $1`,
  audit: `select id as "Id", created_at as "CreatedAt", user_id as "UserId", user_guid as "UserGuid", action as "Action",
      resource as "Resource", record_key as "Key", before as "Before", after as "After", ip_address as "IPAddress",
      trace_id as "TraceId"
    from audit_log order by id desc limit 20`,
  entity: `select e.id as "Id", name as "Name", entity_type as "EntityType", status_id as "StatusId",
      title as "StatusTitle", currency_id as "CurrencyId", country_code as "CountryCode", e.created_at as "CreatedAt"
    from entities e join entity_statuses s on s.id = status_id where e.id = $1`,
  create: `insert into order_statuses (name, weighting) values ($1, $2)
    returning id as "Id", name as "Name", weighting as "Weighting", created_at as "CreatedAt"`,
  createAudited: `with created as (
      insert into order_statuses (name, weighting) values ($1, $2)
      returning id, name, weighting, created_at),
    audited as (
      insert into audit_log (user_id, user_guid, action, resource, record_key, after, ip_address, trace_id,
        database_user, feed_era)
      select $3::bigint, $4::uuid, 'create', 'OrderStatus', c.id::text, to_jsonb(c), $5, $6, session_user,
          (select i.feed_era from tenant_identity i)
        from created c)
    select id as "Id", name as "Name", weighting as "Weighting", created_at as "CreatedAt" from created`,
  user: 'select id, password_hash as hash from users where email = $1',
  session: 'insert into sessions (user_id) values ($1) returning id',
};

/** The statement that reads one record of a resource. */
const single = new Map<string, keyof typeof statements>([
  ['EntityStatus', 'one'],
  ['Activity', 'activity'],
  ['Entities', 'entity'],
]);

async function query(
  name: keyof typeof statements,
  values: unknown[] = [],
): Promise<Record<string, unknown>[]> {
  turn = (turn + 1) % connections;
  const result = await clients[turn]?.query({ name, text: statements[name], values });
  return result?.rows ?? [];
}

/** The user of the audit entries. */
const userGuid = randomUUID();

async function createStatus(
  name: unknown,
  weighting: unknown,
  { socket }: IncomingMessage,
): Promise<Record<string, unknown>[]> {
  if (!process.env.AUDITED) return query('create', [name, weighting]);

  const actor = [1, userGuid, socket.remoteAddress, randomUUID()];
  return query('createAudited', [name, weighting, ...actor]);
}

async function route(request: IncomingMessage): Promise<[number, unknown]> {
  const path = request.url ?? '';

  if (request.method === 'GET') {
    if (path === '/api/v1/UnitsOfMeasure') return [200, await query('many')];
    if (path === '/api/v1/Activity') return [200, await query('activities')];
    if (path === '/api/v1/AuditLog') return [200, await query('audit')];

    const [, resource = '', id = ''] = /^\/api\/v1\/(\w+)\/(\d+)$/.exec(path) ?? [];
    const statement = single.get(resource);
    const [record] = statement ? await query(statement, [Number(id)]) : [];
    return record ? [200, record] : [404, {}];
  }

  const body = JSON.parse(await text(request));
  if (path === '/api/v1/OrderStatuses') {
    return [201, (await createStatus(body.Name, body.Weighting, request))[0]];
  }

  const [user] = await query('user', [body.email]);
  if (!(await verify(String(user?.hash ?? (await decoyHash)), body.password))) return [401, {}];
  const [session] = await query('session', [user?.id]);
  return [200, { accessToken: session?.id }];
}

async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const [status, content] = await route(request).catch((error): [number, unknown] => [
    500,
    { error: String(error) },
  ]);
  const bytes = Buffer.from(JSON.stringify(content));
  response.writeHead(status, {
    'Content-Type': 'application/json; charset=utf-8',
    'Content-Length': bytes.length,
  });
  response.end(bytes);
}

listen(createServer((request, response) => void handle(request, response)));
