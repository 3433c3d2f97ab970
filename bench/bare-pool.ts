import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import pg from 'pg';
import { listening } from './listening.ts';

/**
 * The least that keeps a connection budget over many databases: at most `BUDGET` connections over all of them, whoever
 * needs one more waits in line, and the idle connection that was used longest ago is given up for it.
 * `GET /<number>/…/<id>` reads one row of the database on that line of the file `DATABASES`.
 */
interface Connection {
  readonly database: number;
  readonly client: pg.Client;
}

const budget = Number(process.env.BUDGET);
const urls = (await readFile(process.env.DATABASES ?? '', 'utf8')).trim().split('\n');
/** Least recently used first. */
const idle = new Set<Connection>();
const idleOf = new Map<number, Connection[]>();
const waiting: { database: number; take: (connection: Connection | undefined) => void }[] = [];
let open = 0;

/** An idle connection of the database, or a place for a new one. */
async function acquire(database: number): Promise<Connection> {
  const found = take(database) ?? (await place(database));
  if (found) return found;
  try {
    const client = new pg.Client({ connectionString: urls[database], application_name: 'bench-governor' });
    client.on('error', () => {});
    await client.connect();
    return { database, client };
  } catch (error) {
    hand(undefined);
    throw error;
  }
}

function take(database: number): Connection | undefined {
  const connection = idleOf.get(database)?.pop();
  if (connection) idle.delete(connection);
  return connection;
}

async function place(database: number): Promise<Connection | undefined> {
  if (open < budget) {
    open++;
    return undefined;
  }
  const [oldest] = idle;
  if (oldest) {
    idle.delete(oldest);
    const others = idleOf.get(oldest.database);
    others?.splice(others.indexOf(oldest), 1);
    await oldest.client.end();
    return undefined;
  }
  const connection = await new Promise<Connection | undefined>(take => {
    waiting.push({ database, take });
  });
  if (!connection || connection.database === database) return connection;
  await connection.client.end();
  return undefined;
}

function release(connection: Connection): void {
  if (hand(connection)) return;
  idle.add(connection);
  const others = idleOf.get(connection.database);
  if (others) others.push(connection);
  else idleOf.set(connection.database, [connection]);
}

/** Gives a connection to the first in line who can use it as it is, else to the first; of one that failed, the place. */
function hand(connection: Connection | undefined): boolean {
  const fitting = connection ? waiting.findIndex(({ database }) => database === connection.database) : -1;
  const [next] = waiting.splice(Math.max(fitting, 0), 1);
  if (next) next.take(connection);
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
      response.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': bytes.length });
      response.end(bytes);
    },
    error => {
      response.statusCode = 500;
      response.end(String(error));
    },
  );
});
listening(server);
