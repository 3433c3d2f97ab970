import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import pg from 'pg';
import { listen } from './listen.ts';

/**
 * The bare-pool server: the smallest implementation of a connection budget over many databases.
 * It opens at most `BUDGET` connections in total; at that number, a request evicts the least
 * recently used idle connection, or else waits in a FIFO queue. `GET /<number>/…/<id>` reads
 * one row of the database whose URL is on that line (from 0) of the file `DATABASES`.
 */
interface Connection {
  readonly database: number;
  readonly client: pg.Client;
}

/**
 * A request that waits for a connection; `resolve(undefined)` gives it the right to open a new
 * one.
 */
interface Waiter {
  readonly database: number;
  readonly resolve: (connection: Connection | undefined) => void;
}

const budget = Number(process.env.BUDGET);
const urls = (await readFile(process.env.DATABASES ?? '', 'utf8')).trim().split('\n');
/** Least recently used first. */
const idle = new Set<Connection>();
const idleByDatabase = new Map<number, Connection[]>();
const queue: Waiter[] = [];
let open = 0;

/** Returns an idle connection of the database, or opens one. */
async function acquire(database: number): Promise<Connection> {
  const reused = takeIdle(database) ?? (await reserve(database));
  if (reused) return reused;
  try {
    const client = new pg.Client({
      connectionString: urls[database],
      application_name: 'bench-bare-pool',
    });
    client.on('error', () => {});
    await client.connect();
    return { database, client };
  } catch (error) {
    handOver(undefined);
    throw error;
  }
}

function takeIdle(database: number): Connection | undefined {
  const connection = idleByDatabase.get(database)?.pop();
  if (connection) idle.delete(connection);
  return connection;
}

/**
 * Returns a released connection of the database, or undefined when the caller may open a new
 * one.
 */
async function reserve(database: number): Promise<Connection | undefined> {
  if (open < budget) {
    open++;
    return undefined;
  }

  const [oldest] = idle;
  if (oldest) {
    idle.delete(oldest);
    const siblings = idleByDatabase.get(oldest.database);
    siblings?.splice(siblings.indexOf(oldest), 1);
    await oldest.client.end();
    return undefined;
  }

  const connection = await new Promise<Connection | undefined>(resolve => {
    queue.push({ database, resolve });
  });

  if (!connection || connection.database === database) return connection;
  await connection.client.end();
  return undefined;
}

function release(connection: Connection): void {
  if (handOver(connection)) return;
  idle.add(connection);
  const siblings = idleByDatabase.get(connection.database);
  if (siblings) siblings.push(connection);
  else idleByDatabase.set(connection.database, [connection]);
}

/**
 * Gives a connection to the first waiter for the same database, or else to the first waiter.
 * @param connection undefined: opening one failed, and the waiter may open another
 * @returns whether there was a waiter
 */
function handOver(connection: Connection | undefined): boolean {
  const sameDatabase = connection
    ? queue.findIndex(({ database }) => database === connection.database)
    : -1;
  const [next] = queue.splice(Math.max(sameDatabase, 0), 1);
  if (next) next.resolve(connection);
  else if (!connection) open--;
  return next !== undefined;
}

const text = 'select id, title, weighting, created_at from entity_statuses where id = $1';

async function read(database: number, id: number): Promise<object> {
  const connection = await acquire(database);
  try {
    const { rows } = await connection.client.query({ name: 'one', text, values: [id] });
    return rows[0] ?? {};
  } finally {
    release(connection);
  }
}

const server = createServer((request, response) => {
  const [, database, ...path] = (request.url ?? '').split('/');
  read(Number(database), Number(path.at(-1))).then(
    row => {
      const bytes = Buffer.from(JSON.stringify(row));
      response.writeHead(200, {
        'Content-Type': 'application/json',
        'Content-Length': bytes.length,
      });
      response.end(bytes);
    },
    error => {
      response.statusCode = 500;
      response.end(String(error));
    },
  );
});
listen(server);
