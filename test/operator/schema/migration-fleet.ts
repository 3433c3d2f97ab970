import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import type { MigrationFailure } from '../../../src/operator/schema/migration-failure.ts';
import { makeNextBuild, type NextBuild } from '../../support/next-build.ts';
import { runCommand } from '../../support/run-command.ts';
import { postgresUrl, server } from '../../support/test-server.ts';
import { laterObject } from '../../support/use.ts';
import { controlSql, createWorld, sql, type TestTenant, type World } from '../../support/world.ts';

interface Outcome {
  slug: string;
  state: string;
  from: string | null;
  to: string | null;
  error?: string;
  failure?: MigrationFailure;
}

export type MigrationFleet = ReturnType<typeof useMigrationFleet>;

/**
 * Makes a world with this many tenants and a next build, before the tests of a `describe`.
 * Before each test, all tenants have the schema of this build.
 */
export function useMigrationFleet(tenantCount: number) {
  let made: { world: World; next: NextBuild };
  const world = laterObject(() => made.world);
  const next = laterObject(() => made.next);
  /** All tenants, sorted by slug. */
  const tenants: TestTenant[] = [];

  before(async () => {
    const [world, next] = await Promise.all([createWorld(), makeNextBuild()]);
    made = { world, next };
    tenants.push(world.acme, world.globex);
    for (let number = 1; tenants.length < tenantCount; number++) {
      tenants.push(await world.provision(`tenant-0${number}`));
    }
  });
  after(async () => {
    await world.close();
    const { migrationsDigest } = await import(next.file('src/operator/schema/template.ts'));
    const template = `${server.prefix}_template_${await migrationsDigest()}`;
    const names = 'select datname as name from pg_database where starts_with(datname, $1)';
    const { rows } = await withConnection(postgresUrl(), client => client.query(names, [template]));
    expect(rows).to.deep.equal([{ name: template }]);
    await next.remove();
  });
  beforeEach(async () => {
    await query('delete from migration_runs');
    await Promise.all(tenants.map(resetTenant));
  });

  const query = <Row extends object>(text: string, values: unknown[] = []) =>
    controlSql<Row>(world, text, values);
  const runTenant = (args: string[]) =>
    runCommand(next.file('scripts/tenant.ts'), args, world.environment);
  /**
   * The process of the current build runs on, and stops serving the tenants that the next build
   * migrates.
   */
  const migrate = (...args: string[]) =>
    runTenant(['migrate', '--json', '--despite-running', ...args]);
  const linesOf = ({ stdout }: { stdout: string }): Outcome[] =>
    stdout
      .split('\n')
      .filter(line => line.endsWith('}'))
      .map(line => JSON.parse(line));
  const slugs = () => tenants.map(({ slug }) => slug);

  /** Puts a tenant back to the migrations of this build, after the changes of a test. */
  async function resetTenant(tenant: TestTenant): Promise<void> {
    await sql(
      tenant,
      `drop table if exists labels;
       delete from migrations where name = '${next.head}';
       create index if not exists entities_status_id_id_index on entities (status_id, id)`,
    );
    await query('update tenants set schema_version = ?, schema_fingerprint = null where id = ?', [
      next.currentHead,
      tenant.id,
    ]);
  }

  /** Makes the next migration fail for these tenants: its table exists already. */
  async function blockMigration(...blocked: TestTenant[]): Promise<void> {
    for (const tenant of blocked) await sql(tenant, 'create table labels (in_the_way text)');
  }

  const versions = async (): Promise<Record<string, string | null>> =>
    Object.fromEntries(
      (
        await query<{ slug: string; version: string }>(
          'select slug, schema_version as version from tenants',
        )
      ).map(({ slug, version }) => [slug, version]),
    );
  const runs = () =>
    query<{ id: string; state: string }>('select id, state from migration_runs order by id');
  /** Returns the state of each tenant in the newest recorded run. */
  const states = async (): Promise<Record<string, string>> =>
    Object.fromEntries(
      (
        await query<{ slug: string; state: string }>(
          `select slug, o.state from migration_outcomes o join tenants t on t.id = tenant_id
            where run_id = (select max(id) from migration_runs) order by slug`,
        )
      ).map(({ slug, state }) => [slug, state]),
    );
  const all = (value: string) => Object.fromEntries(slugs().map(slug => [slug, value]));

  async function expectAllMigratedOnce(): Promise<void> {
    expect(await versions()).to.deep.equal(all(next.head));
    for (const tenant of tenants) {
      const [found] = await sql(
        tenant,
        `select (select json_agg(title) from labels) as titles,
                (select count(*)::int from migrations where name = $1) as applied,
                (select count(*)::int from entity_statuses) as statuses`,
        [next.head],
      );
      expect(found, tenant.slug).to.deep.equal({ titles: ['once'], applied: 1, statuses: 3 });
    }
    const fingerprints = await query('select distinct schema_fingerprint from tenants');
    expect(fingerprints).to.have.length(1);
  }

  return {
    world,
    next,
    tenants,
    query,
    runTenant,
    migrate,
    linesOf,
    slugs,
    all,
    resetTenant,
    blockMigration,
    versions,
    runs,
    states,
    expectAllMigratedOnce,
  };
}
