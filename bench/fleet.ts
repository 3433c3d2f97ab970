import { parseArgs } from 'node:util';
import { withConnection } from '../src/postgres/connection.ts';
import { openBenchInstallation } from './bench-installation.ts';
import { type Fleet, makeFleet, together } from './fleet-tenants.ts';
import { spread, timed } from './spread.ts';

/**
 * What a large fleet costs its operator, by the real command line: to make it, to migrate it (beside raw `pg` that sends
 * the same statements over as many connections and keeps no books), to find that there is nothing to do, to list it.
 */
const { values } = parseArgs({
  options: {
    tenants: { type: 'string', default: '1000' },
    rounds: { type: 'string', default: '3' },
    concurrency: { type: 'string', default: '4' },
    json: { type: 'boolean', default: false },
  },
});
const [tenants, rounds, concurrency] = [values.tenants, values.rounds, values.concurrency].map(Number) as [
  number,
  number,
  number,
];

/** The least, the middle and the most of the rounds. */
const figures: Record<string, ReturnType<typeof spread>> = {};
const opened = await openBenchInstallation(['max_connections=100', 'shared_buffers=256MB']);
let fleet: Fleet | undefined;
try {
  say(`making ${tenants} tenants …`);
  const makingMs = await timed(async () => {
    fleet = await makeFleet(opened, tenants);
  });
  note('tenants made/s, 4 at once', [(1_000 * tenants) / makingMs]);
  if (fleet) await bench(fleet);
  if (values.json) console.log(JSON.stringify({ tenants, rounds, concurrency, figures }, null, 2));
  else print();
} finally {
  await fleet?.next.remove();
  await opened.close();
}

async function bench({ command, next, send, revert: takeBack, tenants: all, up }: Fleet): Promise<void> {
  const migrate = ['migrate', '--all', '--json', '--concurrency', String(concurrency)];
  const run: Record<'raw' | 'ms' | 'mb', number[]> = { raw: [], ms: [], mb: [] };
  // The first run of a build makes its template, which costs the same for any number of tenants.
  await expectDone(command('next', ['migrate', all[0]?.slug ?? '', '--json']).ended);
  for (let round = 1; round <= rounds; round++) {
    await takeBack();
    say(`round ${round}: raw pg …`);
    run.raw.push(await timed(() => together(all, concurrency, tenant => send(tenant, up))));
    await takeBack();
    say(`round ${round}: a run …`);
    const before = await sessions();
    const { ms, peakMb, stdout } = await expectDone(command('next', migrate).ended);
    const migrated = stdout.split('\n').filter(line => line.includes('"state":"migrated"')).length;
    if (migrated !== tenants) throw new Error(`${migrated} of ${tenants} were migrated, to ${next.head}`);
    run.ms.push(ms);
    run.mb.push(peakMb);
    note('tenant connections of a run', [(await sessions()) - before]);
  }
  note(
    'raw pg, tenants/s',
    run.raw.map(ms => (1_000 * tenants) / ms),
  );
  note(
    'a run, tenants/s',
    run.ms.map(ms => (1_000 * tenants) / ms),
  );
  note(
    'a run / raw pg',
    run.ms.map((ms, round) => ms / (run.raw[round] ?? Number.NaN)),
  );
  note('peak memory of a run, MB', run.mb);

  const ways: Record<string, ['this' | 'next', string[]]> = {
    'a run with nothing to do': ['next', migrate],
    list: ['next', ['list']],
    'list --json': ['next', ['list', '--json']],
    status: ['next', ['status']],
  };
  for (const [name, [build, args]] of Object.entries(ways)) {
    const before = await sessions();
    const times: number[] = [];
    for (let round = 0; round < rounds; round++) times.push((await expectDone(command(build, args).ended)).ms);
    note(`${name}, ms`, times);
    note(`${name}, tenant connections`, [(await sessions()) - before]);
  }
}

/** Every connection there ever was to a tenant database, as PostgreSQL counts them. */
async function sessions(): Promise<number> {
  return withConnection(opened.serverUrl, async client => {
    const { rows } = await client.query<{ sessions: number }>(
      `select coalesce(sum(sessions), 0)::int as sessions from pg_stat_database where datname ~ $1`,
      [`^${opened.server.prefix}_tenant-`],
    );
    return rows[0]?.sessions ?? Number.NaN;
  });
}

async function expectDone<T extends { code: number | null; stderr: string }>(ended: Promise<T>): Promise<T> {
  const done = await ended;
  if (done.code !== 0) throw new Error(`ended with ${done.code}: ${done.stderr}`);
  return done;
}

function note(name: string, of: number[]): void {
  figures[name] = spread(of);
}

function say(text: string): void {
  if (process.stderr.isTTY) process.stderr.write(`${text}\n`);
}

function print(): void {
  console.log(`${tenants} tenants, ${concurrency} connections, ${rounds} rounds\n`);
  const width = Math.max(...Object.keys(figures).map(name => name.length));
  for (const [name, { min, median, max }] of Object.entries(figures)) {
    const text = [median, min, max].map(figure => figure.toFixed(figure < 100 && !Number.isInteger(figure) ? 2 : 0));
    console.log(`${name.padEnd(width)}  ${text[0]}  (${text[1]}–${text[2]})`);
  }
}
