import { withConnection } from '../../src/lib/postgres/connection.ts';

/**
 * Holds a connection to the URL in its argument, inside a transaction, and prints the process
 * id of its backend.
 */
await withConnection(process.argv[2] ?? '', async client => {
  await client.query('begin');
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
  process.stdout.write(`backend ${rows[0]?.pid}\n`);
  await new Promise(resolve => setTimeout(resolve, 600_000));
});
