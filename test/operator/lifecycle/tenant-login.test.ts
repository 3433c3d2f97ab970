import { expect } from 'chai';
import { owners } from '../../../src/control/secret-box.ts';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { sqlState } from '../../../src/lib/postgres/database-error.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { use } from '../../support/use.ts';

describe('the login of a tenant', () => {
  const server = use(createDedicatedServer);
  let login: string;
  let globex: { guid: string; roleName: string };
  before(async () => {
    const { tenant } = await server.provision('acme');
    globex = (await server.provision('globex')).tenant;
    const password = server.installation.secrets
      .open(tenant.rolePassword, owners.rolePassword(tenant.guid))
      .toString();
    login = databaseUrl(server.url, tenant.databaseName, { user: tenant.roleName, password });
  });

  it('the login of a tenant stores no large object, by any function', async () => {
    const calls = [
      'lo_creat(-1)',
      'lo_create(0)',
      "lo_from_bytea(0, 'x')",
      "lo_put(1, 0, 'x')",
      'lo_open(1, 131072)',
      "lowrite(0, 'x')",
      'lo_truncate(0, 1)',
      'lo_truncate64(0, 1)',
      'lo_unlink(1)',
      "lo_import('/etc/hostname')",
      "lo_import('/etc/hostname', 1)",
    ];

    await withConnection(login, async client => {
      for (const call of calls) {
        const code = await client.query(`select ${call}`).then(() => undefined, sqlState);
        expect(code, call).to.equal('42501');
      }
    });
  });

  it('the login of a tenant reads neither the slug nor the guid of another tenant in the catalogs that all databases share', async () => {
    const { rows } = await withConnection(login, client =>
      client.query<{ shared: string }>(`
        select string_agg(shared, ' ') as shared from (
          select datname::text as shared from pg_database
          union all select concat_ws(' ', rolname, shobj_description(oid, 'pg_authid')) from pg_roles
          union all select description from pg_shdescription
          union all select s::text from pg_db_role_setting s
          union all select a::text from pg_stat_activity a
          union all select concat_ws(' ', slot_name, database) from pg_replication_slots
        ) as visible`),
    );

    expect(rows[0]?.shared)
      .to.include(globex.roleName)
      .and.not.match(/globex/)
      .and.not.include(globex.guid);
  });

  it('an operator finds the database of a tenant with show', async () => {
    const { stdout } = await runCommand(
      'scripts/backoffice.ts',
      ['show', 'globex', '--json'],
      server.environment,
    );
    expect(JSON.parse(stdout)).to.include({ slug: 'globex', database: globex.roleName });
  });
});
