import type pg from 'pg';

const chunk = 500_000;

/** Rows of 200 users and 50,000 entities; a fifth of them have a comment. */
const insert = (createdAt: string): string => `
  insert into activities (created_at, activity_code, user_id, comment, entity_id, screen, ip_address, recorded_by, recorded_from)
  select ${createdAt}, 100 + i % 40, 1 + (hashint8(i)::bigint & 2147483647) % 200,
         case when i % 5 = 0 then 'Called about order ' || i % 9973 end,
         1 + (hashint8(i * 31)::bigint & 2147483647) % 50000,
         (array['Orders', 'Customers', 'Suppliers', 'Invoices'])[1 + i % 4], '10.0.0.' || i % 250, 1, '10.0.0.1'
    from generate_series($1::bigint, $2::bigint) i`;

/** Fills the table with rows of the last years, the oldest first. Its indexes are made when the rows are there. */
export async function fillActivities(client: pg.Client, rows: number, years: number): Promise<void> {
  await client.query('alter table activities disable trigger user');
  const { rows: indexes } = await client.query<{ name: string; definition: string }>(
    `select indexrelid::regclass::text as name, pg_get_indexdef(indexrelid) as definition
       from pg_index where indrelid = 'activities'::regclass and not indisprimary`,
  );
  for (const { name } of indexes) await client.query(`drop index ${name}`);
  const at = `now() - interval '${years} years' + interval '${years} years' * (i::float8 / ${rows})`;
  for (let from = 1; from <= rows; from += chunk)
    await client.query(insert(at), [from, Math.min(rows, from + chunk - 1)]);
  for (const { definition } of indexes) await client.query(definition);
  await client.query('alter table activities enable trigger user');
  await client.query('vacuum analyze activities');
  await client.query('checkpoint');
}

/** Adds rows of now, as the service does, with all indexes in place. */
export async function addActivities(client: pg.Client, rows: number): Promise<void> {
  await client.query('alter table activities disable trigger user');
  for (let from = 1; from <= rows; from += chunk)
    await client.query(insert('clock_timestamp()'), [from, Math.min(rows, from + chunk - 1)]);
  await client.query('alter table activities enable trigger user');
}

/** Describes the sizes of the table and of its indexes, and its dead rows as the statistics have them. */
export async function tableFacts(client: pg.Client): Promise<string> {
  const { rows } = await client.query<{ facts: string }>(
    `select format('%s rows, table %s, indexes %s, %s dead rows', (select count(*) from activities),
                   pg_size_pretty(pg_table_size('activities')), pg_size_pretty(pg_indexes_size('activities')),
                   pg_stat_get_dead_tuples('activities'::regclass)) as facts`,
  );
  return rows[0]?.facts ?? '';
}
