import { expect } from 'chai';
import { backupSettings } from '../support/backup-settings.ts';
import { runScript } from '../support/command-line.ts';
import { missingPrograms, type S3Program, s3Programs } from '../support/s3-programs.ts';
import { sql, useWorld } from '../support/world.ts';

/** The bytes of a part of an upload. */
const partBytes = 8 * 1024 ** 2;

for (const [name, { programs, start }] of Object.entries(s3Programs)) {
  describe(`drill: archives in ${name}`, function () {
    this.timeout(600_000);
    const world = useWorld();
    let store: S3Program | undefined;
    let environment: Record<string, string>;

    before(async function () {
      const missing = missingPrograms(programs);
      if (missing.length > 0) {
        console.log(`${missing.join(', ')} are not installed: the drill is skipped`);
        return this.skip();
      }

      store = await start();
      environment = {
        ...world.environment,
        ...(await backupSettings('')),
        ...store.environment,
      };
    });
    after(() => store?.close());

    async function run(...words: string[]): Promise<string> {
      const { code, stdout, stderr } = await runScript('scripts/backoffice.ts', words, environment);
      expect(code, `${words.join(' ')}: ${stderr}${stdout}`).to.equal(0);

      return stdout;
    }

    const versionsOf = async (part: string): Promise<string[]> =>
      ((await store?.versions()) ?? []).filter(key => key.includes(part));
    const titles = (): Promise<{ title: string }[]> =>
      sql(world.acme, 'select title from entity_statuses order by id');

    it('backup init makes the bucket a target, and says which conditions the store refuses', async () => {
      const said = await run('backup', 'init');

      console.log(`      ${said.trim()}`);
      expect(said).to.include('is a target of this installation now');
    });

    it('tenants are archived, in one request and in parts, and the archives are listed, verified, opened and drilled', async () => {
      await sql(
        world.acme,
        `insert into activities (activity_code, comment, recorded_by, recorded_from)
         select 7, string_agg(md5(random()::text), ' '), 1, '::1'
           from generate_series(1, 40000) n, generate_series(1, 20) group by n`,
      );

      await run('backup', 'run', '--all');

      const [archive] = JSON.parse(await run('backup', 'list', 'acme', '--json'));
      expect(archive.size, JSON.stringify(archive)).to.be.above(partBytes);
      expect(await versionsOf(`/tenants/${world.acme.guid}/`)).to.have.length(1);
      await run('backup', 'verify');
      await run('backup', 'drill', '--count', '5');
      expect(await run('backup', 'run', '--all')).to.include('2 unchanged');
    });

    it('a tenant gets its archived data back, and the other one keeps its own', async () => {
      const before = await titles();
      await sql(world.acme, `insert into entity_statuses (title) values ('Added later')`);
      await sql(world.globex, `insert into entity_statuses (title) values ('Of globex')`);

      await run('restore', 'acme', '--archive', 'latest');
      await run('restore', 'swap', 'acme', '--yes');

      const { database } = JSON.parse(await run('show', 'acme', '--json'));
      const url = new URL(world.acme.adminUrl);
      url.pathname = `/${database}`;
      const restored = await sql(
        { adminUrl: url.href },
        'select title from entity_statuses order by id',
      );
      expect(restored).to.deep.equal(before);
      expect(
        await sql(world.globex, `select from entity_statuses where title = 'Of globex'`),
      ).to.have.length(1);
    });

    it('backup prune removes older archives, and a purge all versions of those of its tenant', async () => {
      environment.BACKUP_KEEP = '1h';
      await run('backup', 'run', '--all');
      await run('backup', 'prune');
      await run('delete', 'globex', '--yes');

      const said = await run('purge', 'globex', '--yes');

      console.log(`      ${said.trim()}`);
      expect(await versionsOf(world.globex.guid)).to.deep.equal([]);
      expect(await versionsOf(world.acme.guid)).to.not.be.empty;
    });
  });
}
