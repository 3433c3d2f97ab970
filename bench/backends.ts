import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';

/** The most connections that were seen at the same time. */
export interface Backends {
  /** Of the service, to whatever database. */
  service: number;
  /** Of those, to tenants' databases and used since the watch began: what merely stays open is not needed. */
  tenants: number;
  governor: number;
}

const everyMs = 100;
/** Who is not the service, by the name it gives itself: this bench and the baselines. */
const others = ['bench-sampler', 'bench-baseline', 'bench-governor', 'backoffice-embedded', 'backoffice-operator'];

/** A connection that is being made has no name yet: those that the one before has still asked for are not to be counted. */
async function untilNobodyStarts(client: pg.Client): Promise<void> {
  const starting = `select count(*)::int as count from pg_stat_activity where backend_type = 'client backend' and application_name = ''`;
  for (let quiet = 0; quiet < 3; ) {
    const { rows } = await client.query<{ count: number }>(starting);
    quiet = rows[0]?.count === 0 ? quiet + 1 : 0;
    await delay(everyMs);
  }
}

/** Looks at `pg_stat_activity` every 100 ms until it is stopped. */
export async function watchBackends(serverUrl: string): Promise<{ stop(): Promise<Backends> }> {
  const client = new pg.Client({ connectionString: serverUrl, application_name: 'bench-sampler' });
  await client.connect();
  await untilNobodyStarts(client);
  const began = (await client.query<{ now: string }>('select now()::text as now')).rows[0]?.now;
  const most: Backends = { service: 0, tenants: 0, governor: 0 };
  const look = async (): Promise<void> => {
    const { rows } = await client.query<Record<keyof Backends, number>>({
      name: 'look',
      text: `select count(*) filter (where not application_name = any($1))::int as service,
          count(*) filter (where not application_name = any($1) and datname <> 'backoffice' and query_start > $2::timestamptz)::int as tenants,
          count(*) filter (where application_name = 'bench-governor')::int as governor
        from pg_stat_activity where backend_type = 'client backend'`,
      values: [others, began],
    });
    const [now] = rows;
    if (!now) return;
    for (const key of ['service', 'tenants', 'governor'] as const) most[key] = Math.max(most[key], now[key]);
  };
  let stopped = false;
  const watching = (async () => {
    while (!stopped) {
      const next = delay(everyMs);
      await look();
      await next;
    }
  })();
  watching.catch(() => {}); // told by stop
  return {
    stop: async () => {
      stopped = true;
      try {
        await watching;
      } finally {
        await client.end();
      }
      return most;
    },
  };
}
