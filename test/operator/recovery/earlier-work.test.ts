import { rm } from 'node:fs/promises';
import { expect } from 'chai';
import { readConfig } from '../../../src/config/config.ts';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { openControlArchives } from '../../../src/operator/archives/control-archive.ts';
import { openTarget } from '../../../src/operator/archives/targets/open-target.ts';
import { restoreControl } from '../../../src/operator/control/restore-control.ts';
import { createDedicatedServer, type DedicatedServer } from '../../support/dedicated-server.ts';
import { createEarlier, move } from '../../support/earlier-control.ts';
import { runCommand } from '../../support/run-command.ts';
import { makeServerFolder } from '../../support/server-folder.ts';

/** A move, a swap, a settlement, a tenant restored beside another one, and a lost database, all unfinished. */
const unfinished = [
  move('acme', 'copying', 'one_tenant_1').replaceAll('two_tenant_9', 'two_tenant_20'),
  `insert into former_databases (tenant_id, server_id, database_name, until)
   select t.id, s.id, 'one_tenant_7', now() from tenants t, servers s where slug = 'isle' and s.name = 'alpha'`,
  move('isle', 'settling', 'one_tenant_7'),
  `insert into tenant_fences (tenant_guid, id, closed, to_server_id)
   select guid, gen_random_uuid(), true, server_id from tenants where slug = 'gone'`,
  `insert into restored_tenants (tenant_id, source_id, restored_from)
   select s.id, t.id, 'an archive' from tenants s, tenants t where s.slug = 'quiet' and t.slug = 'acme'`,
  `insert into tenants (slug, name, app_id, status, server_id, database_name, role_name, role_password, restoring)
   select 'lost', 'lost', 'lost', 'active', id, 'one_tenant_30', 'one_tenant_30', 'sealed', 'an archive'
     from servers where name = 'alpha'`,
];

describe('restore of a control database in which an earlier build had unfinished work', () => {
  let server: DedicatedServer;
  let folder: string;

  before(async () => {
    server = await createDedicatedServer();
    folder = await makeServerFolder('archives');
    const environment = { ...server.environment, BACKUP_TARGET: folder };
    for (const args of [['init'], ['run', '--all']]) {
      const { code, stderr } = await runCommand('scripts/tenant.ts', ['backup', ...args], environment);
      expect(code, stderr).to.equal(0);
    }
  });
  after(async () => {
    await server.close();
    await rm(folder, { recursive: true, force: true });
  });

  it('gives that work up, says so, keeps every database, and serves no tenant whose data may be missing', async () => {
    const target = openTarget(readConfig({ ...server.environment, BACKUP_TARGET: folder }).backup);
    const access = await openControlArchives(target, server.installation.secrets);
    const [own] = await server.control<{ sql: string }>(
      `select format('update installation set id = %L, master_key_canary = %L', id, master_key_canary) as sql
         from installation`,
    );
    await server.sql('drop database office with (force)');
    const load = async (url: string): Promise<void> => void (await createEarlier(url, own?.sql ?? '', ...unfinished));
    const source = { description: '2026-01-01T00:00:00Z', at: new Date(), load };
    const installation = { ...server.installation, controlUrl: databaseUrl(server.url, 'office') };
    const { report } = await restoreControl(installation, access, source);
    expect(report?.givenUp.map(sentence => sentence.split(':')[0])).to.deep.equal([
      'acme was being moved',
      'isle was being moved',
      'lost had lost its database, which was being restored',
      'quiet was restored beside another tenant',
    ]);
    const tenants = await server.control<{ slug: string; status: string }>('select slug, status from tenants');
    expect(Object.fromEntries(tenants.map(({ slug, status }) => [slug, status]))).to.include({
      acme: 'active',
      isle: 'active',
      lost: 'suspended',
      quiet: 'deleted',
    });
    const databases = await server.control<object>(
      `select slug, d.database_name as database, state, keep_until as until
         from tenant_databases d join tenants t on t.id = tenant_id where slug in ('acme', 'isle', 'quiet', 'lost')`,
    );
    const row = (slug: string, database: string, state: string) => ({ slug, database, state, until: null });
    expect(databases).to.have.deep.members([
      row('acme', 'one_tenant_1', 'current'),
      row('acme', 'two_tenant_20', 'kept'),
      row('isle', 'two_tenant_9', 'current'),
      row('isle', 'one_tenant_7', 'kept'),
      row('quiet', 'one_tenant_3', 'current'),
      row('lost', 'one_tenant_30', 'current'),
    ]);
    expect(await server.control('select from tenant_fences')).to.deep.equal([]);
  });
});
