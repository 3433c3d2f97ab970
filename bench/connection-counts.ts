import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';

/** The largest numbers of connections that were open at the same time. */
export interface ConnectionCounts {
  /** Connections of the service to any database. */
  service: number;
  /**
   * The connections among them that go to tenant databases and were used since the count began;
   * idle ones are not needed.
   */
  tenants: number;
  /** Connections of the bare-pool server. */
  barePool: number;
}

const pollMs = 100;
/**
 * Application names of every client that is not the service: this bench and the servers it
 * compares with.
 */
const otherClients = [
  'bench-sampler',
  'bench-baseline',
  'bench-bare-pool',
  'backoffice-embedded',
  'backoffice-operator',
];

/**
 * Waits until no connection is being opened (300 ms without one). A connection has no
 * application name until it is open, so those that the previous case still opens could not be
 * told apart from the service's.
 */
async function waitUntilNoneStarts(client: pg.Client): Promise<void> {
  const starting = `select count(*)::int as count from pg_stat_activity
    where backend_type = 'client backend' and application_name = ''`;
  for (let quietPolls = 0; quietPolls < 3; ) {
    const { rows } = await client.query<{ count: number }>(starting);
    quietPolls = rows[0]?.count === 0 ? quietPolls + 1 : 0;
    await delay(pollMs);
  }
}

/** Polls `pg_stat_activity` every 100 ms until `stop`, which returns the maxima. */
export async function startConnectionCount(
  serverUrl: string,
): Promise<{ stop(): Promise<ConnectionCounts> }> {
  const client = new pg.Client({ connectionString: serverUrl, application_name: 'bench-sampler' });
  await client.connect();
  await waitUntilNoneStarts(client);

  const startedAt = (await client.query<{ now: string }>('select now()::text as now')).rows[0]?.now;
  const maxima: ConnectionCounts = { service: 0, tenants: 0, barePool: 0 };

  const poll = async (): Promise<void> => {
    const { rows } = await client.query<ConnectionCounts>({
      name: 'count-connections',
      text: `select count(*) filter (where not application_name = any($1))::int as service,
          count(*) filter (where not application_name = any($1) and datname <> 'backoffice'
            and query_start > $2::timestamptz)::int as tenants,
          count(*) filter (where application_name = 'bench-bare-pool')::int as "barePool"
        from pg_stat_activity where backend_type = 'client backend'`,
      values: [otherClients, startedAt],
    });
    const [counts] = rows;
    if (!counts) return;

    for (const key of ['service', 'tenants', 'barePool'] as const) {
      maxima[key] = Math.max(maxima[key], counts[key]);
    }
  };

  let stopped = false;
  const polling = (async () => {
    while (!stopped) {
      const next = delay(pollMs);
      await poll();
      await next;
    }
  })();
  polling.catch(() => {}); // stop() throws it

  return {
    stop: async () => {
      stopped = true;
      try {
        await polling;
      } finally {
        await client.end();
      }
      return maxima;
    },
  };
}
