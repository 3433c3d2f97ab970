import { writeFile } from 'node:fs/promises';
import { expect } from 'chai';
import { backupSettings } from '../../support/backup-settings.ts';
import { jsonLines } from '../../support/json-lines.ts';
import { makeNextBuild, type NextBuild } from '../../support/next-build.ts';
import { useOwnDrills } from '../../support/own-drills.ts';
import { runCommand } from '../../support/run-command.ts';
import { makeServerFolder } from '../../support/server-folder.ts';
import { backUp } from '../../support/succeed.ts';
import { TwoServers } from '../../support/two-servers.ts';
import { controlSql } from '../../support/world.ts';

const controlMigration = `
import { Migration } from '@mikro-orm/migrations';

export class Notes extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql('create table notes (id integer primary key)');
  }

  override down(): void {
    this.addSql('drop table notes');
  }
}
`;

describe('commands of a build, after a later one has migrated', () => {
  useOwnDrills();
  let servers: TwoServers;
  let next: NextBuild;

  before(async () => {
    const folder = await makeServerFolder('backups');
    [servers, next] = await Promise.all([
      backupSettings(folder).then(settings => TwoServers.start(settings)),
      makeNextBuild(),
    ]);
    await writeFile(next.file('migrations/control/9999-notes.ts'), controlMigration);
    await backUp(servers.world.environment);
    await migrateByNext('control', 'control', 'migrate');
    await migrateByNext('tenant', 'migrate', 'acme', '--despite-running');
  });
  after(async () => {
    await servers.close();
    await next.remove();
  });

  const migrateByNext = async (script: 'control' | 'tenant', ...args: string[]) => {
    const words = script === 'control' ? args.slice(1) : args;
    const path = next.file(`scripts/${script}.ts`);
    const { code, stderr } = await runCommand(path, words, servers.world.environment);
    expect(code, stderr).to.equal(0);
  };

  /** Returns what commands record in the control database. */
  const recorded = () =>
    controlSql(
      servers.world,
      `select (select json_agg(t order by id) from tenants t)::text as tenants,
              (select json_agg(d order by d.tenant_id, database_name) from tenant_databases d)::text as databases,
              (select json_agg(a order by name) from archives a)::text as archives,
              (select count(*) from backup_runs) as backups,
              (select count(*) from history_removals) as removals,
              (select count(*) from migration_runs) as runs,
              (select count(*) from migration_outcomes) as outcomes`,
    );

  for (const words of [
    'migrate acme',
    'migrate --all',
    'migrate acme --dry-run',
    'migrate --all --dry-run',
    'migrate --retry-failed --dry-run',
    'move acme --to second',
    'move acme --to second --dry-run',
    'clone acme copy',
    'clone acme copy --dry-run',
    'clone acme copy --archive latest',
    'clone acme copy --archive latest --dry-run',
    'restore acme --archive latest',
    'restore acme --archive latest --dry-run',
    'packs apply acme --packs currencies',
    'packs apply acme --packs currencies --dry-run',
    'rollback acme --yes --despite-running',
    'rollback acme --dry-run',
    'backup drill --count 2',
    'retention apply acme',
    'retention apply acme --dry-run',
    'retention apply acme --without-archive',
    'retention apply --all',
    'retention apply --all --dry-run',
    'backup run acme',
    'backup run acme --dry-run',
    'backup run --all',
    'backup run --all --dry-run',
  ]) {
    it(`${words} is refused by one sentence that names the later version, and records nothing`, async () => {
      const before = await recorded();
      const { code, stdout, stderr } = await servers.run(words.split(' '));

      const text = `${stdout}${stderr}`;
      expect(code, text).to.equal(1);
      expect(text).to.include(`is at version ${next.head}, of a later build: use that build`);
      if (words !== 'backup drill --count 2') expect(await recorded()).to.deep.equal(before);
    });
  }

  it('a backup of a tenant that the later build has not migrated is refused too, because each run archives the control database', async () => {
    const before = await recorded();
    const { code, stderr } = await servers.run(['backup', 'run', 'globex']);

    expect(code).to.equal(1);
    expect(stderr).to.include(
      'The control database is at version 9999-notes, of a later build: use that build',
    );
    expect(await recorded()).to.deep.equal(before);
  });

  it('a drill proves the archives of the tenants that the later build has not migrated, and finds no fault in the others', async () => {
    await servers.run(['backup', 'drill', '--count', '2']);

    const rows = await controlSql(
      servers.world,
      `select slug, drilled_at is not null as drilled, fault from archives join tenants on guid = tenant_guid order by slug`,
    );
    expect(rows).to.deep.equal([
      { slug: 'acme', drilled: false, fault: null },
      { slug: 'globex', drilled: true, fault: null },
    ]);
  });

  it('a retention is applied to the tenants that the later build has not migrated, when they are named, and can be set for the others', async () => {
    await servers.runWell(['retention', 'acme', '--activity', '2y']);
    await servers.runWell(['retention', 'globex', '--activity', '2y']);

    const printed = await servers.runWell(['retention', 'apply', 'globex', '--json']);

    expect(jsonLines(printed).at(-1)).to.include({ tenants: 1, failed: 0 });
    expect(
      await controlSql(servers.world, 'select kind, state from history_removals'),
    ).to.deep.equal([{ kind: 'activity', state: 'done' }]);
  });

  it('commands that neither copy nor migrate go on, also for a tenant that was migrated', async () => {
    await servers.runWell(['edit', 'acme', '--name', 'Acme of later']);
    await servers.runWell(['session', 'list', 'acme']);
    await servers.runWell(['suspend', 'acme', '--yes']);
    await servers.runWell(['resume', 'acme']);
    expect(await servers.runWell(['list'])).to.include(next.head);
    await servers.runWell(['packs', 'apply', 'globex', '--packs', 'currencies']);
  });

  it('control migrate changes nothing, and leaves the login of the service the privileges that the later build gave it', async () => {
    const { world } = servers;
    const database = new URL(world.installation.controlUrl).pathname.slice(1);
    const login = `${decodeURIComponent(database)}_service`;
    await controlSql(world, `grant select on notes to "${login}"`);

    const { code, stdout } = await runCommand('scripts/control.ts', ['migrate'], world.environment);

    expect([code, stdout]).to.deep.equal([0, 'Nothing to do.\n']);
    const [kept] = await controlSql(
      world,
      `select has_table_privilege(?, 'notes', 'select') as granted`,
      [login],
    );
    expect(kept).to.deep.equal({ granted: true });
  });
});
