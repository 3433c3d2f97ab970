/**
 * SQL that fills a tenant's lists: 100,000 rows in those without a maximum, and as many as the
 * maximum permits in the others. The texts are made of 3,000 words, and each value comes from
 * the number of its row, so that every run has the same rows.
 */
export function largeTenantSql(rows = 100_000): string[] {
  return [
    `set app.actor = '{}'`,
    `alter table currencies disable trigger user`,
    `insert into currencies (code, name, symbol, decimal_places, created_at)
     select 'X' || i, ${words('i', 2)}, case when i % 3 = 0 then null else 'x' end, i % 4,
            timestamptz '2025-01-01Z' + i * interval '9 minutes'
       from generate_series(1, ${rows / 10}) i`,
    `alter table currencies enable trigger user`,
    `insert into countries (country_code, country_name)
     select chr(65 + i / 8) || chr(65 + i % 8), 'Country ' || i from generate_series(0, 47) i
         on conflict do nothing`,
    `alter table entities disable trigger user`,
    `insert into entities (name, entity_type, status_id, currency_id, country_code, created_at)
     select initcap(${words('i', 3)}) || ' ' || i, case when i % 5 < 3 then 'customer' else 'supplier' end,
            (select min(id) from entity_statuses) + ${number('i', 1, 3)}, case when i % 4 = 0 then null else (select min(id) from currencies) + ${number('i', 5, 20)} end,
            case when i % 9 = 0 then null else chr(65 + ${number('i', 2, 6)}) || chr(65 + ${number('i', 3, 8)}) end,
            timestamptz '2025-01-01Z' + ${number('i', 4, 40_000_000)} * interval '1 second'
       from generate_series(1, ${rows}) i`,
    `alter table entities enable trigger user`,
    `insert into activities (created_at, activity_code, user_id, comment, entity_id, screen, ip_address, recorded_by, recorded_from)
     select timestamptz '2025-01-01Z' + i * interval '5 minutes', 100 + ${number('i', 1, 40)},
            case when i % 50 = 0 then null else 1 + ${number('i', 2, 200)} end,
            case when i % 20 = 0 then null else ${words('i', 8)} || '. ' || ${words('i + 7', 3)} end,
            case when i % 10 = 0 then null else 1 + ${number('i', 3, 5_000)} end,
            (array['Orders', 'Customers', 'Suppliers', 'Invoices', 'Stock'])[1 + ${number('i', 4, 5)}],
            '10.0.' || ${number('i', 5, 4)} || '.' || ${number('i', 6, 250)}, 1, '127.0.0.1'
       from generate_series(1, ${rows}) i`,
    `insert into audit_log (created_at, user_id, user_guid, entity_id, action, resource, record_key, before, after,
                            ip_address, trace_id, database_user)
     select timestamptz '2025-01-01Z' + i * interval '5 minutes', 1 + u, md5('user' || u)::uuid,
            case when resource = 'Entity' then key::bigint end, action, resource, key,
            case when action <> 'create' then stored end, case when action <> 'delete' then stored end,
            '10.0.' || ${number('i', 5, 4)} || '.' || ${number('i', 6, 250)}, md5('trace' || i)::uuid, 'service'
       from (select i, ${number('i', 1, 50)} as u,
                    case when i % 3 = 0 then 'create' when i % 100 = 1 then 'delete' else 'update' end as action,
                    (array['Entity','Entity','Entity','Entity','Currency','TaxCode','SystemOption','Promotion','OrderStatus'])
                      [1 + ${number('i', 2, 9)}] as resource,
                    (1 + ${number('i', 3, 20_000)})::text as key,
                    jsonb_build_object('id', i, 'name', ${words('i', 3)}, 'entity_type', 'customer', 'status_id', 1,
                      'currency_id', null, 'country_code', 'GB', 'created_at', timestamptz '2025-01-01Z') as stored
               from generate_series(1, ${rows}) i) made`,
    `alter table system_options disable trigger user`,
    `insert into system_options (system_option_type_id, value, is_active, created_at)
     select 1 + ${number('i', 1, 300)}, ${words('i', 3)}, i % 7 > 0, timestamptz '2025-01-01Z' + i * interval '9 minutes'
       from generate_series(1, ${rows / 2}) i`,
    `alter table system_options enable trigger user`,
    'analyze',
  ];
}

/** A number below `max`, which differs by the row and by `salt`. */
const number = (row: string, salt: number, max: number): string =>
  `((hashint4((${row}) * 31 + ${salt})::bigint & 2147483647) % ${max})::int`;

const stems = [
  'trading',
  'north',
  'harbour',
  'river',
  'paper',
  'steel',
  'garden',
  'light',
  'summer',
  'winter',
  'copper',
  'silver',
];
const stemList = `array[${stems.map(stem => `'${stem}'`).join(', ')}]`;

/** Some of 3,000 words, which are a stem and a number. */
const words = (row: string, count: number): string =>
  Array.from(
    { length: count },
    (_, i) => `(${stemList})[1 + ${number(row, 10 + i, 12)}] || ${number(row, 30 + i, 250)}`,
  ).join(` || ' ' || `);
