import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { createEarlier, migrationName, move, query, runTenantDatabases } from '../../support/earlier-control.ts';
import { runCommand } from '../../support/run-command.ts';
import { useScratchDatabases } from '../../support/scratch-databases.ts';

const intro = 'End what the earlier build has begun, with that build, and run this again:';

describe('control migration of the databases of tenants, while something is unfinished', () => {
  const createScratch = useScratchDatabases();

  const migrate = (url: string, ...args: string[]) =>
    runCommand('scripts/tenant.ts', ['control', 'migrate', ...args], {
      DATABASE_URL: url,
      MASTER_KEY: randomBytes(32).toString('base64'),
    });

  it('what the build before has begun is refused, each with the command that ends it, and nothing is changed', async () => {
    const fence = (slug: string): string => `
      insert into tenant_fences (tenant_guid, id, closed, to_server_id)
      select guid, gen_random_uuid(), true, server_id from tenants where slug = '${slug}'`;
    const unfinished: [sql: string[], sentence: string][] = [
      [[move('isle', 'copying', 'x')], 'a move of isle (copying): npx backoffice move resume isle'],
      [[move('isle', 'settling', 'x')], 'a move of isle (settling): npx backoffice move settle isle'],
      [[move('isle', 'aborting', 'x')], 'a move of isle (aborting): npx backoffice move abort isle'],
      [
        [
          `insert into restored_tenants (tenant_id, source_id, restored_from)
           select s.id, t.id, 'an archive' from tenants s, tenants t where s.slug = 'quiet' and t.slug = 'acme'`,
        ],
        'quiet was restored beside another tenant: npx backoffice delete quiet; npx backoffice purge quiet',
      ],
      [
        [`update tenants set restoring = 'an archive' where slug = 'acme'`],
        'a restore of the lost database of acme: npx backoffice restore acme --lost',
      ],
      [[fence('acme')], 'a swap of acme: npx backoffice restore back acme'],
      // Its kept move does not hide the swap.
      [[move('isle', 'switched', 'x'), fence('isle')], 'a swap of isle: npx backoffice restore back isle'],
    ];
    const url = await createEarlier(await createScratch());
    for (const [content, sentence] of unfinished) {
      await query(url, ...content);
      const { code, stderr } = await migrate(url);
      expect(code, stderr).to.equal(1);
      expect(stderr).to.equal(`${intro} ${sentence}\n`);
      await expectUnchanged(url);
      await query(
        url,
        'truncate tenant_moves, restored_tenants, tenant_fences cascade',
        'update tenants set restoring = null',
      );
    }
  });

  it('all that is unfinished is named at once, and the migration runs when it is ended', async () => {
    const url = await createEarlier(
      await createScratch(),
      move('isle', 'copying', 'x'),
      `update tenants set restoring = 'an archive' where slug = 'acme'`,
    );
    const { code, stderr } = await migrate(url, '--json');
    expect(code, stderr).to.equal(1);
    const { error } = JSON.parse(stderr);
    expect(error.code).to.equal('failed');
    expect(`${error.message} ${error.hint ?? ''}`)
      .to.include('npx backoffice move resume isle; ')
      .and.include('npx backoffice restore acme --lost');
    await query(
      url,
      `update tenant_moves set state = 'aborted', ended_at = now()`,
      'update tenants set restoring = null',
    );
    expect(await runTenantDatabases(url)).to.deep.equal([migrationName]);
  });

  async function expectUnchanged(url: string): Promise<void> {
    const [found] = await query<{ last: string; made: string | null; moves: string | null }>(
      url,
      `select max(name) as last, to_regclass('tenant_databases') as made, to_regclass('tenant_moves')::text as moves
         from migrations`,
    );
    expect(found).to.include({ made: null, moves: 'tenant_moves' });
    expect((found?.last ?? '') < migrationName).to.equal(true);
  }
});
