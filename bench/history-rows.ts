import type pg from 'pg';

const chunk = 500_000;
/** Rows of so many entities and users. */
export const [entityCount, actorCount] = [50_000, 200];

/** A pseudo-random number from 1 to `max`, by the number of the row. */
const random = (max: number, seed: string): string =>
  `1 + (hashint8(${seed})::bigint & 2147483647) % ${max}`;

/** Activities of 200 users and 50,000 entities; a fifth of them have a comment. */
const insertActivities = (createdAt: string): string => `
  insert into activities (created_at, activity_code, user_id, comment, entity_id, screen, ip_address, recorded_by, recorded_from)
  select ${createdAt}, 100 + i % 40, ${random(actorCount, 'i')},
         case when i % 5 = 0 then 'Called about order ' || i % 9973 end, ${random(entityCount, 'i * 31')},
         (array['Orders', 'Customers', 'Suppliers', 'Invoices'])[1 + i % 4], '10.0.0.' || i % 250, 1, '10.0.0.1'
    from generate_series($1::bigint, $2::bigint) i`;

/**
 * Audit entries of the same users; half of them are of entities, the others of reference data.
 */
const insertAuditEntries = (createdAt: string): string => `
  insert into audit_log (created_at, user_id, user_guid, entity_id, action, resource, record_key, before, after, ip_address, trace_id, database_user)
  select ${createdAt}, actor, md5(actor::text)::uuid, case when i % 2 = 0 then entity end,
         case when i % 10 < 3 then 'create' else 'update' end,
         case when i % 2 = 0 then 'Entity' else (array['UnitOfMeasure', 'OrderStatus', 'Currency', 'TaxCode'])[1 + i / 2 % 4] end,
         entity::text, case when i % 10 >= 3 then jsonb_build_object('id', entity, 'name', 'Entity ' || i, 'created_at', now()) end,
         jsonb_build_object('id', entity, 'name', 'Entity ' || i + 1, 'created_at', now()),
         '10.0.0.' || i % 250, md5(i::text), 'bench'
    from (select i, ${random(actorCount, 'i')} as actor, ${random(entityCount, 'i * 31')} as entity
            from generate_series($1::bigint, $2::bigint) i) numbers`;

const tables = { activities: insertActivities, audit_log: insertAuditEntries };

/**
 * Fills a table with rows of the last years, the oldest first. Its indexes are made when the
 * rows are there.
 */
export async function fillHistory(
  client: pg.Client,
  table: keyof typeof tables,
  rows: number,
  years: number,
): Promise<void> {
  await client.query(
    `set maintenance_work_mem = '512MB'; alter table ${table} disable trigger user`,
  );

  const { rows: indexes } = await client.query<{ name: string; definition: string }>(
    `select indexrelid::regclass::text as name, pg_get_indexdef(indexrelid) as definition
       from pg_index where indrelid = $1::regclass and not indisprimary`,
    [table],
  );
  for (const { name } of indexes) await client.query(`drop index ${name}`);

  const insert = tables[table](
    `now() - interval '${years} years' + interval '${years} years' * (i::float8 / ${rows})`,
  );
  for (let from = 1; from <= rows; from += chunk) {
    await client.query(insert, [from, Math.min(rows, from + chunk - 1)]);
  }

  for (const { definition } of indexes) await client.query(definition);
  await client.query(`alter table ${table} enable trigger user`);
  await client.query(`vacuum analyze ${table}`);
}

/** Adds activities of now, as the service does, with all indexes in place. */
export async function addActivities(client: pg.Client, rows: number): Promise<void> {
  await client.query('alter table activities disable trigger user');
  const insert = insertActivities('clock_timestamp()');
  for (let from = 1; from <= rows; from += chunk) {
    await client.query(insert, [from, Math.min(rows, from + chunk - 1)]);
  }
  await client.query('alter table activities enable trigger user');
}

/**
 * Fills the entities of the history, and one kind of reference data. They have no audit
 * entries.
 */
export async function fillRecords(client: pg.Client, records: number): Promise<void> {
  await client.query(`
    begin;
    set local session_replication_role = replica;
    insert into entities (id, name, entity_type, status_id)
      overriding system value
      select i, 'Entity ' || i, case when i % 2 = 0 then 'customer' else 'supplier' end, 1 + i % 3
        from generate_series(1, ${entityCount}) i;
    commit;
    insert into units_of_measure (code, name)
      select 'P' || to_char(i, 'FM000000'), 'Product ' || i from generate_series(1, ${records}) i`);
  await client.query('vacuum analyze entities, units_of_measure');
}

/** Fills the users of a tenant, in the control database; none of them can log in. */
export async function fillUsers(client: pg.Client, tenantId: number, users: number): Promise<void> {
  await client.query(
    `insert into users (tenant_id, email, password_hash, first_name, last_name, role_id, confirmed_at, last_login_at)
       select $1, 'user-' || i || '@bench.test', '', 'First ' || i, 'Last ' || i % 997,
              (select min(id) from roles where tenant_id = $1), now(), now() - i * interval '1 minute'
         from generate_series(1, $2::integer) i`,
    [tenantId, users],
  );
  await client.query('vacuum analyze users');
}

/**
 * Describes the sizes of the table and of its indexes, and its dead rows as the statistics have
 * them.
 */
export async function tableFacts(client: pg.Client, table: keyof typeof tables): Promise<string> {
  const { rows } = await client.query<{ facts: string }>(
    `select format('%s rows, table %s, indexes %s, %s dead rows', (select count(*) from ${table}),
                   pg_size_pretty(pg_table_size('${table}')), pg_size_pretty(pg_indexes_size('${table}')),
                   pg_stat_get_dead_tuples('${table}'::regclass)) as facts`,
  );
  return `${table}: ${rows[0]?.facts ?? ''}`;
}
