import { expect } from 'chai';
import { diagnose } from '../../../src/operator/doctor/doctor.ts';
import { readServerEvidence } from '../../../src/operator/doctor/server-evidence.ts';
import { withConnection } from '../../../src/postgres/connection.ts';
import type { DedicatedServer } from '../../support/dedicated-server.ts';
import { eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';

/**
 * Tests of doctor on tenant databases that did not change.
 * @param server with acme and globex, where nothing is wrong
 */
export function unchangedDatabases(server: DedicatedServer): void {
  let acme: string;
  let globex: string;

  before(async () => {
    [acme, globex] = [await server.databaseOf('acme'), await server.databaseOf('globex')];
    expect(await check(true)).to.deep.equal([0, []]);
  });
  beforeEach('nothing is wrong, and nothing changed', async () => {
    expect(await check()).to.deep.equal([2, []]);
  });

  /** @returns the number of tenant databases that were not opened, and the checks of the findings with their tenants */
  async function check(full = false): Promise<[unchanged: number, findings: string[]]> {
    const { unchanged, findings } = await diagnose(server.installation, { full });
    return [unchanged, findings.map(finding => `${finding.check} ${finding.tenant}`)];
  }

  /** Runs a statement in the database of each tenant. */
  async function inBoth(ofAcme: string, ofGlobex: string): Promise<void> {
    await server.sql(ofAcme, acme);
    await server.sql(ofGlobex, globex);
  }

  /** Sessions of all time, by database. */
  const sessions = () =>
    server.sql(
      `select datname, sessions::int from pg_stat_database where datname in ('${acme}', '${globex}') order by 1`,
    );

  it('doctor opens no unchanged database, and says how many it left out; with --full it opens all', async () => {
    const before = await sessions();
    const doctor = (...args: string[]) => runCommand('scripts/tenant.ts', ['doctor', ...args], server.environment);
    expect(await doctor()).to.deep.include({
      code: 0,
      stdout: 'Checked 2 tenants on 1 server, 2 unchanged since the last check: nothing is wrong.\n',
    });
    expect(JSON.parse((await doctor('--json')).stdout)).to.include({ healthy: true, tenants: 2, unchanged: 2 });
    expect(await sessions()).to.deep.equal(before);
    expect((await doctor('--full')).stdout).to.equal('Checked 2 tenants on 1 server: nothing is wrong.\n');
    expect(await sessions()).to.not.deep.equal(before);
  });

  // schema-fingerprint.test.ts has all kinds of changes: these write in different ways to the catalogs.
  it('doctor finds a change of the schema of a database in which nothing was wrong', async () => {
    const changes: [ofAcme: string, ofGlobex: string, restoreAcme: string, restoreGlobex: string][] = [
      [
        'alter table order_statuses alter column name type varchar(200)',
        'create index by_hand on order_statuses (name)',
        'alter table order_statuses alter column name type text',
        'drop index by_hand',
      ],
      [
        'alter table order_statuses disable trigger audit_update',
        'grant select on order_statuses to pg_monitor',
        'alter table order_statuses enable trigger audit_update',
        'revoke select on order_statuses from pg_monitor',
      ],
    ];
    for (const [ofAcme, ofGlobex, restoreAcme, restoreGlobex] of changes) {
      await inBoth(ofAcme, ofGlobex);
      expect(await check(), ofAcme).to.deep.equal([0, ['schema_drift acme', 'schema_drift globex']]);
      await inBoth(restoreAcme, restoreGlobex);
      expect(await check(), `after ${ofAcme}`).to.deep.equal([0, []]);
    }
  });

  it('doctor opens a database after changes of its schema that leave the compared objects as they were', async () => {
    for (const [ofAcme, ofGlobex] of [
      [`comment on table order_statuses is 'changed'`, 'create table spare (); drop table spare'],
      ['truncate idempotency_keys', 'create statistics spare on id, name from order_statuses; drop statistics spare'],
    ] as const) {
      await inBoth(ofAcme, ofGlobex);
      expect(await check(), ofAcme).to.deep.equal([0, []]);
    }
  });

  it('doctor finds a fault of the login of a tenant although the database of the tenant did not change', async () => {
    const [row] = await server.sql<{ verifier: string }>(
      `select rolpassword as verifier from pg_authid where rolname = '${acme}'`,
    );
    const changes: [change: string, findings: string[], restore: string][] = [
      [
        `alter role "${acme}" password 'another'; alter role "${globex}" valid until '2000-01-01'`,
        ['login_fails acme', 'login_fails globex'],
        `alter role "${acme}" password '${row?.verifier}'; alter role "${globex}" valid until 'infinity'`,
      ],
      [
        `alter role "${acme}" set search_path = nowhere; alter database "${globex}" set search_path = nowhere`,
        ['wrong_identity acme', 'wrong_identity globex'],
        `alter role "${acme}" reset all; alter database "${globex}" reset all`,
      ],
    ];
    for (const [change, findings, restore] of changes) {
      await server.sql(change);
      expect(await check(), change).to.deep.equal([0, findings]);
      await server.sql(restore);
      expect(await check(), restore).to.deep.equal([0, []]);
    }
    await server.sql('create role deep; grant pg_write_all_data to deep; grant deep to office_tenant');
    expect((await check())[0], 'a membership of the group of all tenants').to.equal(0);
    await server.sql('drop role deep');
    await check();
  });

  it('doctor opens all databases after counters were reset, and after the server loaded its settings', async () => {
    await server.sql('select pg_stat_reset()', acme);
    expect(await check()).to.deep.equal([1, []]);
    await server.sql('select pg_stat_reset_shared()');
    expect(await check()).to.deep.equal([0, []]);
    const loadedAt = async () =>
      (await server.sql<{ time: string }>('select pg_conf_load_time()::text as time'))[0]?.time;
    const before = await loadedAt();
    await server.sql('select pg_reload_conf()');
    await eventually(async () => (await loadedAt()) !== before);
    expect(await check()).to.deep.equal([0, []]);
  });

  it('doctor opens a database that is in use', async () => {
    await withConnection(`${server.url.replace(/\/[^/]*$/, '')}/${acme}`, async () =>
      expect(await check()).to.deep.equal([1, []]),
    );
  });

  it('no database is proved unchanged while a session may change rows without counting, or the login may not read passwords', async () => {
    const evidence = () => withConnection(server.url, client => readServerEvidence(client, 'office'));
    expect((await evidence()).server).to.be.a('string');
    await server.sql(`alter role "${globex}" set track_counts = off`);
    expect((await evidence()).server).to.equal(undefined);
    await server.sql(`alter role "${globex}" reset track_counts`);
    await server.sql(`create role plain`);
    const plain = await withConnection(server.url, async client => {
      await client.query('set role plain');
      return readServerEvidence(client, 'office');
    });
    await server.sql('drop role plain');
    expect(plain.server).to.equal(undefined);
  });

  it('what only a full check finds is found by the next check as well', async () => {
    // A superuser can hide a change from the counters.
    await server.sql('set track_counts = off; create index by_hand on order_statuses (name)', acme);
    expect(await check()).to.deep.equal([2, []]);
    expect(await check(true)).to.deep.equal([0, ['schema_drift acme']]);
    expect(await check()).to.deep.equal([1, ['schema_drift acme']]);
    await server.sql('drop index by_hand', acme);
  });
}
