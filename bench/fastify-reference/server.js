import { createSecretKey, randomBytes } from 'node:crypto';
import etag from '@fastify/etag';
import rateLimit from '@fastify/rate-limit';
import { verify } from '@node-rs/argon2';
import Fastify from 'fastify';
import { Redis } from 'ioredis';
import jwt from 'jsonwebtoken';
import pg from 'pg';

/**
 * The Fastify reference: what a good team writes by hand for one tenant. Fastify with response
 * schemas, a `pg` pool with named statements, `jsonwebtoken` with a key created at the start, a
 * rate limit in Redis, ETags, and an audit entry in the transaction of each write. No tenants,
 * no revocable sessions, no OpenAPI, no problem details.
 */
const key = createSecretKey(randomBytes(64));
const pool = new pg.Pool({
  connectionString: process.env.BASELINE_URL,
  application_name: 'bench-baseline',
});
const app = Fastify({ keepAliveTimeout: 60_000 });

const redis = process.env.REDIS_URL ? { redis: new Redis(process.env.REDIS_URL) } : {};
await app.register(rateLimit, {
  max: 1_000_000,
  timeWindow: 1_000,
  skipOnError: true,
  nameSpace: 'fastify:',
  ...redis,
});
await app.register(etag);

const timestamp = { type: 'string', format: 'date-time' };
const record = (...texts) => ({
  type: 'object',
  properties: {
    Id: { type: 'integer' },
    ...Object.fromEntries(texts.map(name => [name, { type: 'string' }])),
    Weighting: { type: 'integer' },
    CreatedAt: timestamp,
  },
});
const status = record('Title');
const unit = record('Code', 'Name');
const order = record('Name');

const toStatus = row => ({
  Id: row.id,
  Title: row.title,
  Weighting: row.weighting,
  CreatedAt: row.created_at,
});
const toUnit = row => ({ Id: row.id, Code: row.code, Name: row.name, CreatedAt: row.created_at });
const toOrder = row => ({
  Id: row.id,
  Name: row.name,
  Weighting: row.weighting,
  CreatedAt: row.created_at,
});

const onRequest = async (request, reply) => {
  try {
    const token = request.headers.authorization?.slice('Bearer '.length) ?? '';
    request.user = jwt.verify(token, key, {
      algorithms: ['HS512'],
      issuer: 'fastify',
      audience: 'fastify',
    });
  } catch {
    return reply.code(401).send({ code: 'invalid_token' });
  }
};
const permission = name => async (request, reply) => {
  if (!request.user.permissions.includes(name)) return reply.code(403).send({ code: 'forbidden' });
};

const nullable = type => ({ type, nullable: true });
const activity = {
  type: 'object',
  properties: {
    Id: { type: 'integer' },
    CreatedAt: timestamp,
    ActivityCode: { type: 'integer' },
    UserId: nullable('integer'),
    Comment: nullable('string'),
    EntityId: nullable('integer'),
    Screen: nullable('string'),
    IPAddress: nullable('string'),
  },
};
const anyFields = { type: 'object', nullable: true, additionalProperties: true };
const auditEntry = {
  type: 'object',
  properties: {
    Id: { type: 'integer' },
    CreatedAt: timestamp,
    UserId: nullable('integer'),
    UserGuid: nullable('string'),
    Action: { type: 'string' },
    Resource: { type: 'string' },
    Key: { type: 'string' },
    Before: anyFields,
    After: anyFields,
    IPAddress: nullable('string'),
    TraceId: nullable('string'),
  },
};
const entity = {
  type: 'object',
  properties: {
    Id: { type: 'integer' },
    Name: { type: 'string' },
    EntityType: { type: 'string' },
    StatusId: { type: 'integer' },
    StatusTitle: { type: 'string' },
    CurrencyId: nullable('integer'),
    CountryCode: nullable('string'),
    CreatedAt: timestamp,
  },
};
const toActivity = row => ({
  Id: row.id,
  CreatedAt: row.created_at,
  ActivityCode: row.activity_code,
  UserId: row.user_id,
  Comment: row.comment,
  EntityId: row.entity_id,
  Screen: row.screen,
  IPAddress: row.ip_address,
});
const toAuditEntry = row => ({
  Id: row.id,
  CreatedAt: row.created_at,
  UserId: row.user_id,
  UserGuid: row.user_guid,
  Action: row.action,
  Resource: row.resource,
  Key: row.record_key,
  Before: row.before,
  After: row.after,
  IPAddress: row.ip_address,
  TraceId: row.trace_id,
});
const toEntity = row => ({
  Id: row.id,
  Name: row.name,
  EntityType: row.entity_type,
  StatusId: row.status_id,
  StatusTitle: row.title,
  CurrencyId: row.currency_id,
  CountryCode: row.country_code,
  CreatedAt: row.created_at,
});

/** Adds a route that reads rows; with `:id` in its path, one of them. */
function read(path, name, text, items, toResponse) {
  const isSingle = path.endsWith('/:id');
  const params = { type: 'object', properties: isSingle ? { id: { type: 'integer' } } : {} };
  const response = { 200: isSingle ? items : { type: 'array', items } };
  app.get(
    path,
    { onRequest, preHandler: permission('full.read'), schema: { params, response } },
    async (request, reply) => {
      const { rows } = await pool.query({
        name,
        text,
        values: isSingle ? [request.params.id] : [],
      });
      if (!isSingle) return rows.map(toResponse);
      return rows[0] ? toResponse(rows[0]) : reply.code(404).send({ code: 'not_found' });
    },
  );
}

read(
  '/api/v1/EntityStatus/:id',
  'one',
  'select id, title, weighting, created_at from entity_statuses where id = $1',
  status,
  toStatus,
);
read(
  '/api/v1/UnitsOfMeasure',
  'many',
  'select id, code, name, created_at from units_of_measure order by code',
  unit,
  toUnit,
);
const activityColumns =
  'id, created_at, activity_code, user_id, comment, entity_id, screen, ip_address';
read(
  '/api/v1/Activity',
  'activities',
  `select ${activityColumns} from activities order by created_at desc, id desc limit 20`,
  activity,
  toActivity,
);
read(
  '/api/v1/Activity/:id',
  'activity',
  `select ${activityColumns} from activities where id = $1`,
  activity,
  toActivity,
);
read(
  '/api/v1/AuditLog',
  'audit-log',
  `select id, created_at, user_id, user_guid, action, resource, record_key, before, after, ip_address, trace_id
     from audit_log order by id desc limit 20`,
  auditEntry,
  toAuditEntry,
);
read(
  '/api/v1/Entities/:id',
  'entity',
  `select e.id, name, entity_type, status_id, title, currency_id, country_code, e.created_at
     from entities e join entity_statuses s on s.id = status_id where e.id = $1`,
  entity,
  toEntity,
);

app.post(
  '/api/v1/OrderStatuses',
  {
    onRequest,
    preHandler: permission('settings.write'),
    schema: {
      body: {
        type: 'object',
        required: ['Name'],
        additionalProperties: false,
        properties: {
          Name: { type: 'string', minLength: 1, maxLength: 200 },
          Weighting: { type: 'integer', default: 0 },
        },
      },
      response: { 201: order },
    },
  },
  async (request, reply) => {
    const { Name, Weighting } = request.body;
    const client = await pool.connect();
    try {
      await client.query('begin');
      const { rows } = await client.query({
        name: 'create',
        text: 'insert into order_statuses (name, weighting) values ($1, $2) returning id, name, weighting, created_at',
        values: [Name, Weighting],
      });
      await client.query({
        name: 'audit',
        text: `insert into audit_log (user_id, action, resource, record_key, after, ip_address, trace_id)
          values ($1, 'create', 'OrderStatus', $2, $3, $4, $5)`,
        values: [request.user.sub, rows[0].id, rows[0], request.ip, request.id],
      });
      await client.query('commit');
      return reply
        .code(201)
        .header('Location', `/api/v1/OrderStatuses/${rows[0].id}`)
        .send(toOrder(rows[0]));
    } catch (error) {
      await client.query('rollback');
      throw error;
    } finally {
      client.release();
    }
  },
);

app.post(
  '/api/v1/auth/login',
  {
    schema: {
      body: {
        type: 'object',
        required: ['email', 'password'],
        properties: { email: { type: 'string' }, password: { type: 'string' } },
      },
    },
  },
  async (request, reply) => {
    const { email, password } = request.body;
    const users = await pool.query({
      name: 'user',
      text: 'select id, password_hash from users where email = $1',
      values: [email],
    });
    const [user] = users.rows;
    if (!user || !(await verify(user.password_hash, password))) {
      return reply.code(401).send({ code: 'invalid_credentials' });
    }
    const session = await pool.query({
      name: 'session',
      text: 'insert into sessions (user_id) values ($1) returning id',
      values: [user.id],
    });
    const claims = {
      sub: String(user.id),
      sid: session.rows[0].id,
      permissions: ['full.read', 'settings.write'],
    };
    const options = { algorithm: 'HS512', issuer: 'fastify', audience: 'fastify', expiresIn: '1d' };
    return { accessToken: jwt.sign(claims, key, options) };
  },
);

await app.listen({ port: 0, host: '127.0.0.1' });
console.log(`listening ${app.server.address().port}`);
process.on('SIGTERM', () => process.exit(0));
