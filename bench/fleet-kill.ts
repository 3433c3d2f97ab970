import { randomInt } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { withConnection } from '../src/postgres/connection.ts';
import { fingerprint } from '../src/postgres/schema-fingerprint.ts';
import { openBenchInstallation } from './bench-installation.ts';
import { type Fleet, makeFleet, type RunningCommand, together } from './fleet-tenants.ts';

/**
 * Kills the real command line at random points, of a run over the fleet and of provisioning, and proves that one more
 * command leaves what an undisturbed one leaves: each migration applied once, nothing orphaned. It ends with 1 otherwise.
 */
const { values } = parseArgs({
  options: {
    tenants: { type: 'string', default: '200' },
    kills: { type: 'string', default: '20' },
    /** The same points again. */
    seed: { type: 'string', default: String(randomInt(1_000_000)) },
  },
});
const [tenants, kills, seed] = [values.tenants, values.kills, values.seed].map(Number) as [number, number, number];
const random = randomNumbers(seed);
console.log(`seed ${seed}`);

/** In which a run does one or two tenants. */
const momentMs = 30;

const opened = await openBenchInstallation(['max_connections=100', 'shared_buffers=256MB']);
let fleet: Fleet | undefined;
try {
  fleet = await makeFleet(opened, tenants);
  await killRuns(fleet);
  await killProvisioning(fleet);
  const { code, stdout } = await fleet.command('next', ['doctor', '--fix']).ended;
  const last = await fleet.command('next', ['doctor']).ended;
  console.log(
    `doctor --fix: ${code}; ${stdout.trim().split('\n').at(-1)}\ndoctor: ${last.code}; ${last.stdout.trim()}`,
  );
  if (last.code !== 0) throw new Error('doctor has found something');
} finally {
  await fleet?.next.remove();
  await opened.close();
}

async function killRuns(on: Fleet): Promise<void> {
  const run = () => on.command('next', ['migrate', '--all', '--json']);
  await done(on.command('next', ['migrate', on.tenants[0]?.slug ?? ''])); // makes the template of the build
  await on.revert();
  const undisturbed = await done(run());
  const expected = await stateOf(on);
  console.log(`a run of ${tenants}, undisturbed: ${undisturbed.ms.toFixed(0)} ms`);
  for (let kill = 1; kill <= kills; kill++) {
    await on.revert();
    await control('delete from migration_runs');
    const at = Math.floor(random() * tenants);
    const { stdout } = await killAmid(run(), at, random() * momentMs);
    const [left] = await control<{ between: number }>(
      'select count(*)::int as between from tenants where schema_version is null',
    );
    const again = await done(run());
    const before = slugsOf(stdout);
    const twice = slugsOf(again.stdout).filter(slug => before.includes(slug));
    const books = await control<{ state: string; pending: number }>(
      `select state, (select count(*)::int from migration_outcomes where run_id = id and state in ('pending', 'running')) as pending
         from migration_runs order by id`,
    );
    const states = books.map(({ state }) => state).join(' ');
    const equal = (await stateOf(on)) === expected;
    const line = `${before.length} done, ${left?.between} between versions; then ${slugsOf(again.stdout).length}`;
    console.log(`killed amid ${at}: ${line}; runs: ${states}; ${equal ? 'equal' : 'NOT EQUAL'}`);
    if (!equal || twice.length > 0 || !/^(abandoned )?succeeded$|^succeeded succeeded$/.test(states))
      throw new Error(`not as undisturbed: ${twice.join(', ')}`);
    if (books.some(({ pending }) => pending > 0)) throw new Error('the ledger has tenants that nobody is at');
  }
}

async function killProvisioning(on: Fleet): Promise<void> {
  const provision = (slug: string) =>
    on.command('next', ['provision', slug, '--name', slug, '--admin-email', `admin@${slug}.test`, '--json']);
  const undisturbed = await done(provision('undisturbed'));
  const expected = await madeOf('undisturbed');
  console.log(`provisioning, undisturbed: ${undisturbed.ms.toFixed(0)} ms`);
  await done(on.command('next', ['pool', 'fill', '--size', String(Math.ceil(kills / 2))])); // half of them find one
  for (let kill = 1; kill <= kills; kill++) {
    const slug = `killed-${kill}`;
    const at = Math.round(random() * undisturbed.ms);
    await killAfter(provision(slug), at);
    const [left] = await control<{ status: string }>(`select status from tenants where slug = '${slug}'`);
    const again = await provision(slug).ended;
    // It may have been done when it was killed; the command says so then, with 1.
    const ended = left?.status === 'active' ? again.code === 1 : again.code === 0;
    const equal = (await madeOf(slug)) === expected;
    console.log(
      `killed after ${at} ms: ${left?.status ?? 'nothing'}; then ${again.code}; ${equal ? 'equal' : 'NOT EQUAL'}`,
    );
    if (!equal || !ended) throw new Error(`not as undisturbed: ${again.stderr}`);
  }
}

/** All that a run leaves: versions and fingerprints as the books have them, and what really is in each database. */
async function stateOf({ tenants: all, next }: Fleet): Promise<string> {
  const books = await control(
    `select slug, status, schema_version, schema_fingerprint,
            (select state in ('migrated', 'current') from migration_outcomes where tenant_id = id order by run_id desc limit 1) as done
       from tenants where slug like 'tenant-%' order by slug`,
  );
  const inside: string[] = [];
  await together(all, 4, async ({ slug, url }) => {
    const found = await withConnection(url, async client => {
      const { rows } = await client.query(
        `select (select guid from tenant_identity) as guid, (select count(*)::int from entity_statuses) as statuses,
                (select string_agg(title, ' ') from labels) as labels,
                (select count(*)::int from migrations where name = $1) as applied`,
        [next.head],
      );
      return { ...rows[0], fingerprint: await fingerprint(client) };
    });
    if (found.applied !== 1 || found.labels !== 'once')
      throw new Error(`${slug}: the migration ran otherwise than once`);
    inside.push(JSON.stringify([slug, found]));
  });
  return JSON.stringify([books, inside.sort()]);
}

/** All that provisioning leaves, without what is another one's each time. */
async function madeOf(slug: string): Promise<string> {
  const [tenant] = await control<{ url: string; guid: string }>(
    `select id, guid, status, schema_version, schema_fingerprint, database_name as url,
            (select count(*)::int from signing_keys k where k.tenant_id = t.id) as keys,
            (select count(*)::int from roles r where r.tenant_id = t.id) as roles,
            (select count(*)::int from users u where u.tenant_id = t.id) as users
       from tenants t where slug = '${slug}'`,
  );
  if (!tenant) return 'nothing';
  const { url: name, guid, ...counts } = tenant as typeof tenant & { id?: number };
  delete counts.id;
  const address = new URL(opened.serverUrl);
  address.pathname = `/${name}`;
  return withConnection(address.href, async client => {
    const { rows } = await client.query(
      `select (select guid = $1 from tenant_identity) as own, (select json_agg(title order by id) from entity_statuses) as statuses,
              (select json_agg(name order by id) from migrations) as migrations`,
      [guid],
    );
    return JSON.stringify([counts, rows, await fingerprint(client)]);
  });
}

/** A run, when it has told of so many tenants, and a moment later. */
async function killAmid(command: RunningCommand, told: number, moment: number): Promise<{ stdout: string }> {
  let ended = false;
  void command.ended.then(() => (ended = true));
  // Before the first one, it takes longer to begin.
  if (told === 0) await sleep(moment * 50);
  while (!ended && slugsOf(command.output.stdout).length < told) await sleep(1);
  await sleep(moment);
  command.kill();
  return command.ended;
}

async function killAfter(command: RunningCommand, ms: number): Promise<{ stdout: string }> {
  await sleep(ms);
  command.kill();
  return command.ended;
}

async function done(command: RunningCommand) {
  const ended = await command.ended;
  if (ended.code !== 0) throw new Error(`ended with ${ended.code}: ${ended.stderr}`);
  return ended;
}

/** Of the tenants that a run has said it migrated. */
function slugsOf(stdout: string): string[] {
  const lines = stdout.split('\n').filter(line => line.startsWith('{') && line.endsWith('}'));
  return lines.map(line => JSON.parse(line).slug);
}

async function control<Row extends object>(text: string): Promise<Row[]> {
  return withConnection(opened.controlUrl, async client => (await client.query(text)).rows as Row[]);
}

/** Numbers from 0 to 1 that a seed tells (mulberry32). */
function randomNumbers(start: number): () => number {
  let state = start;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
