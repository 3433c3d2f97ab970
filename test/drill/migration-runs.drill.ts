import { setTimeout as delay } from 'node:timers/promises';
import { expect } from 'chai';
import { useMigrationFleet } from '../operator/schema/migration-fleet.ts';
import type { Client } from '../support/client.ts';
import { runScript, startScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { unlessLate } from '../support/late-refusals.ts';
import { useServiceProcesses } from '../support/service-processes.ts';
import { sql, type TestTenant } from '../support/world.ts';

const path = '/api/v1/EntityStatus';
/**
 * Between two requests of a client: eleven clients without a pause would take the CPU time of
 * the migration.
 */
const pauseMs = 20;

describe('drill: killed and concurrent migration runs, and one under load', () => {
  const fleet = useMigrationFleet(6);
  const { world, next, tenants, query, runTenant, migrate, linesOf, slugs, all } = fleet;
  const { resetTenant, blockMigration, versions, runs, expectAllMigratedOnce } = fleet;
  const processes = useServiceProcesses();
  /** The URL of a process of the next build. */
  let serviceUrl: string;

  before(async () => {
    // Requests wait for the migration, and for a busy machine, rather than fail.
    const environment = { ...world.environment, ACQUIRE_TIMEOUT_MS: '20000' };
    serviceUrl = (await processes.start(environment, next.file('src/main.ts'))).url;
  });

  it('a run migrates all other tenants under load without errors, and reports the failed one', async () => {
    const [broken, ...others] = tenants as [TestTenant, ...TestTenant[]];
    // Two tenants are at head when the load begins; the others are behind.
    const [first, second] = others as [TestTenant, TestTenant];
    expect((await migrate(first.slug, second.slug)).code).to.equal(0);

    // The current build logs in only tenants of its own version, so the logins precede the
    // migration.
    await resetTenant(first);
    const logins = new Map<string, Client>();
    for (const tenant of tenants) {
      if (tenant !== second) logins.set(tenant.slug, (await world.login(tenant)).at(serviceUrl));
    }

    await migrate(first.slug);
    await blockMigration(broken);

    let running = true;
    const seen = new Map<string, string[]>();
    const load = [...logins].map(async ([slug, client]) => {
      const results: string[] = [];
      seen.set(slug, results);
      while (running) {
        const response = await unlessLate(() => client.get(path));
        if (response) {
          results.push(
            response.status === 200 ? '200' : `${response.status} ${response.body.code}`,
          );
        }
        await delay(pauseMs);
      }
    });

    await eventually(
      () => seen.size === logins.size && [...seen.values()].every(results => results.length > 0),
    );

    const { code, stdout, stderr } = await migrate('--all');
    await eventually(() =>
      [...seen].every(([slug, results]) => slug === broken.slug || results.at(-1) === '200'),
    );

    running = false;
    await Promise.all(load);

    expect({ code, stderr }).to.deep.equal({ code: 1, stderr: '' });
    const outcomes = linesOf({ stdout });
    const failed = outcomes.filter(({ state }) => state === 'failed');
    expect(failed.map(({ slug }) => slug)).to.deep.equal([broken.slug]);
    expect(failed[0]?.error).to.match(new RegExp(`^${next.head}: .*labels`));
    expect(await versions()).to.deep.equal({ ...all(next.head), [broken.slug]: next.currentHead });

    for (const [slug, results] of seen) {
      const kinds = [...new Set(results)];
      const expected =
        slug === broken.slug
          ? ['503 migration_pending']
          : slug === first.slug
            ? ['200']
            : undefined;
      if (expected) expect(kinds, slug).to.deep.equal(expected);
      else expect(kinds.slice(-2), slug).to.deep.equal(['503 migration_pending', '200']);

      // After its first success, a tenant never fails again.
      expect(results.lastIndexOf('503 migration_pending'), slug).to.satisfy(
        (last: number) => slug === broken.slug || last < results.indexOf('200'),
      );
    }

    await sql(broken, 'drop table labels');
    const retried = await migrate('--retry-failed');
    expect(linesOf(retried).map(({ slug, state }) => [slug, state])).to.deep.equal([
      [broken.slug, 'migrated'],
    ]);
    await expectAllMigratedOnce();
    expect((await logins.get(broken.slug)?.get(path))?.status).to.equal(200);
  });

  it('two concurrent migration runs share the tenants, and each tenant is migrated once', async () => {
    const args = ['migrate', '--json', '--despite-running', '--all'];
    const other = runScript(next.file('scripts/tenant.ts'), args, world.environment);
    const both = await Promise.all([other, runTenant(args)]);

    expect(both.map(({ code, stderr }) => [code, stderr])).to.deep.equal([
      [0, ''],
      [0, ''],
    ]);

    const done = both.flatMap(linesOf);
    expect(done.map(({ slug }) => slug).sort()).to.deep.equal(slugs());
    await expectAllMigratedOnce();
  });

  it('runs killed at their first tenant and after one tenant are completed by the next run, and nothing runs twice', async () => {
    const before: string[] = [];
    for (const killedAfter of [0, 1]) {
      const killed = startScript(
        next.file('scripts/tenant.ts'),
        ['migrate', '--all', '--despite-running', '--json', '--concurrency', '2'],
        world.environment,
      );
      await eventually(async () =>
        killedAfter === 0
          ? (await query(`select from migration_outcomes where state = 'running'`)).length > 0
          : linesOf(killed.output).length >= killedAfter,
      );

      killed.process.kill('SIGKILL');
      before.push(...linesOf(await killed.ended).map(({ slug }) => slug));
    }

    const again = await migrate('--all');
    expect(again.code, again.stderr).to.equal(0);
    expect(again.stderr).to.equal('');

    const after = linesOf(again).map(({ slug }) => slug);
    expect(after.filter(slug => before.includes(slug))).to.deep.equal([]);

    expect((await runs()).map(({ state }) => state)).to.deep.equal([
      'abandoned',
      'abandoned',
      'succeeded',
    ]);
    const unfinished = await query(
      `select from migration_outcomes where state in ('pending', 'running')`,
    );
    expect(unfinished).to.deep.equal([]);
    await expectAllMigratedOnce();
  });
});
