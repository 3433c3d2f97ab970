import { expect } from 'chai';
import { withConnection } from '../../../src/postgres/connection.ts';
import { loadMigrations, runMigrations } from '../../../src/postgres/migration-steps.ts';
import { useScratchDatabases } from '../../support/scratch-databases.ts';

const migrationName = '0034-tenant-databases';
const day = (number: number): string => `2026-01-${String(number).padStart(2, '0')}T00:00:00Z`;

/** Tenants in all statuses on two servers, and two warm databases, as 0.1.0 has left them. */
const earlier = `
  insert into servers (name, prefix) values ('alpha', 'one'), ('beta', 'two');
  insert into tenants (slug, name, app_id, status, server_id, database_name, role_name, role_password,
                       schema_version, compatible_from, schema_fingerprint, created_at, purging_at)
  select slug, slug, slug, status, s.id, database, database || '_role', 'sealed',
         nullif(version, ''), nullif(version, ''), nullif(version, ''), '${day(1)}', purging::timestamptz
    from (values ('acme', 'active', 'alpha', 'one_tenant_1', '0026-a', null),
                 ('isle', 'active', 'beta', 'two_tenant_9', '0026-b', null),
                 ('quiet', 'suspended', 'alpha', 'one_tenant_3', '0025-c', null),
                 ('gone', 'deleted', 'alpha', 'one_tenant_4', '0026-d', null),
                 ('fresh', 'provisioning', 'alpha', 'one_tenant_5', '', null),
                 ('ending', 'deleted', 'alpha', 'one_tenant_6', '0026-e', '${day(9)}'))
         as t (slug, status, server, database, version, purging) join servers s on s.name = server;
  insert into warm_databases (id, server_id, digest, ready_at, created_at)
  select warm.id, s.id, 'digest', ready::timestamptz, '${day(2)}'
    from (values (100, '${day(3)}'), (101, null)) as warm (id, ready), servers s where s.name = 'alpha';
  select setval(pg_get_serial_sequence('tenants', 'id'), 101)`;

const databases = `
  select coalesce(slug, '–') as slug, s.name as server, d.database_name as database, d.role_name as role, state,
         convert_from(d.role_password, 'UTF8') as password, d.schema_version as version, digest,
         to_char(current_since at time zone 'UTC', 'DD') as since, filled_at is not null as "isFilled"
    from tenant_databases d left join tenants t on t.id = tenant_id join servers s on s.id = d.server_id`;

describe('control migration of the databases of tenants', () => {
  const createScratch = useScratchDatabases();

  it('every database of 0.1.0 has a row with its state, and a number that no later one gets', async () => {
    const url = await createScratch();
    const all = await loadMigrations('control');
    const last = all.findIndex(each => each.name === migrationName);
    await runMigrations(url, all.slice(0, last));
    await withConnection(url, client => client.query(earlier));
    expect(await runMigrations(url, all.slice(0, last + 1))).to.deep.equal([migrationName]);

    const own = { server: 'alpha', state: 'current', version: null, digest: null, since: null, isFilled: true };
    const ofTenant = (slug: string, database: string, facts: object) => ({
      ...{ ...own, slug, database, role: `${database}_role`, password: 'sealed', ...facts },
    });
    const warm = (database: string, facts: object) => ({
      ...{ ...own, slug: '–', database, role: database, password: null, digest: 'digest', ...facts },
    });
    await withConnection(url, async client => {
      expect((await client.query(databases)).rows).to.have.deep.members([
        ofTenant('acme', 'one_tenant_1', { version: '0026-a', since: '01' }),
        ofTenant('isle', 'two_tenant_9', { server: 'beta', version: '0026-b', since: '01' }),
        ofTenant('quiet', 'one_tenant_3', { version: '0025-c', since: '01' }),
        ofTenant('gone', 'one_tenant_4', { version: '0026-d', since: '01' }),
        ofTenant('fresh', 'one_tenant_5', { state: 'reserved', isFilled: false }),
        ofTenant('ending', 'one_tenant_6', { state: 'condemned', version: '0026-e' }),
        warm('one_warm_100', { state: 'filled' }),
        warm('one_warm_101', { state: 'condemned', isFilled: false }),
      ]);
      const { rows } = await client.query<{ next: string; max: string }>(
        `select nextval(pg_get_serial_sequence('tenants', 'id')) as next, (select max(id) from tenant_databases) as max`,
      );
      expect(Number(rows[0]?.next)).to.be.above(Number(rows[0]?.max));
    });
  });
});
