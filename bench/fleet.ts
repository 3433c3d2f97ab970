import pLimit from 'p-limit';
import { withConnection } from '../src/postgres/connection.ts';
import { openBenchInstallation } from './bench-installation.ts';
import { progress } from './bench-progress.ts';
import { succeeded } from './fleet-command.ts';
import { type Fleet, makeFleet } from './fleet-tenants.ts';
import { readScriptOptions } from './script-options.ts';
import { spread, timed } from './spread.ts';

/**
 * Measures a large fleet with the real command line: making it, migrating it (compared with raw `pg`, which sends the
 * same statements over the same number of connections and keeps no ledger), a run with nothing to do, and listing it.
 */
const usage = { command: 'bench:fleet', text: 'Measures making, migrating and listing many tenants.' };
const { tenants, rounds, concurrency, json } = readScriptOptions(usage, { tenants: 1_000, rounds: 3, concurrency: 4 }, [
  'json',
]);

/** Minimum, median and maximum over the rounds, by name. */
const figures: Record<string, ReturnType<typeof spread>> = {};
const opened = await openBenchInstallation(['max_connections=100', 'shared_buffers=256MB']);
let fleet: Fleet | undefined;
try {
  progress(`making ${tenants} tenants`);
  const makingMs = await timed(async () => {
    fleet = await makeFleet(opened, tenants);
  });
  note('tenants made/s, 4 at a time', [(1_000 * tenants) / makingMs]);
  if (fleet) await bench(fleet);
  if (json) console.log(JSON.stringify({ tenants, rounds, concurrency, figures }, null, 2));
  else print();
} finally {
  await fleet?.next.remove();
  await opened.close();
}

async function bench({ command, next, send, revert, tenants: all, up }: Fleet): Promise<void> {
  const migrate = ['migrate', '--all', '--json', '--concurrency', String(concurrency)];
  const measured: Record<'raw' | 'ms' | 'mb', number[]> = { raw: [], ms: [], mb: [] };
  // The first run of a build makes its template, which costs the same for any number of tenants.
  await succeeded(command('next', ['migrate', all[0]?.slug ?? '', '--json']));
  for (let round = 1; round <= rounds; round++) {
    await revert();
    progress(`round ${round}: raw pg`);
    measured.raw.push(await timed(() => pLimit(concurrency).map(all, tenant => send(tenant, up))));
    await revert();
    progress(`round ${round}: migration run`);
    const before = await sessions();
    const { ms, peakMb, stdout } = await succeeded(command('next', migrate));
    const migrated = stdout.split('\n').filter(line => line.includes('"state":"migrated"')).length;
    if (migrated !== tenants) throw new Error(`${migrated} of ${tenants} tenants were migrated to ${next.head}`);
    measured.ms.push(ms);
    measured.mb.push(peakMb);
    note('tenant connections of a migration run', [(await sessions()) - before]);
  }
  note(
    'raw pg, tenants/s',
    measured.raw.map(ms => (1_000 * tenants) / ms),
  );
  note(
    'migration run, tenants/s',
    measured.ms.map(ms => (1_000 * tenants) / ms),
  );
  note(
    'migration run / raw pg',
    measured.ms.map((ms, round) => ms / (measured.raw[round] ?? Number.NaN)),
  );
  note('peak memory of a migration run, MB', measured.mb);

  const commands: Record<string, ['this' | 'next', string[]]> = {
    'migration run with nothing to do': ['next', migrate],
    list: ['next', ['list']],
    'list --json': ['next', ['list', '--json']],
    status: ['next', ['status']],
  };
  for (const [name, [build, args]] of Object.entries(commands)) {
    const before = await sessions();
    const times: number[] = [];
    for (let round = 0; round < rounds; round++) times.push((await succeeded(command(build, args))).ms);
    note(`${name}, ms`, times);
    note(`${name}, tenant connections`, [(await sessions()) - before]);
  }
}

/** Returns how many connections tenant databases have had in total, from PostgreSQL's statistics. */
async function sessions(): Promise<number> {
  return withConnection(opened.serverUrl, async client => {
    const { rows } = await client.query<{ sessions: number }>(
      `select coalesce(sum(sessions), 0)::int as sessions from pg_stat_database where datname ~ $1`,
      [`^${opened.server.prefix}_tenant-`],
    );
    return rows[0]?.sessions ?? Number.NaN;
  });
}

function note(name: string, values: number[]): void {
  figures[name] = spread(values);
}

function print(): void {
  console.log(`${tenants} tenants, ${concurrency} connections, ${rounds} rounds\n`);
  const width = Math.max(...Object.keys(figures).map(name => name.length));
  for (const [name, { min, median, max }] of Object.entries(figures)) {
    const text = [median, min, max].map(figure => figure.toFixed(figure < 100 && !Number.isInteger(figure) ? 2 : 0));
    console.log(`${name.padEnd(width)}  ${text[0]}  (${text[1]}–${text[2]})`);
  }
}
