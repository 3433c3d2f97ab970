import { once } from 'node:events';
import { expect } from 'chai';
import pg from 'pg';
import {
  checkServerSettings,
  readServerSettings,
  type ServerSettings,
} from '../../../src/operator/doctor/check-server-settings.ts';
import { diagnose } from '../../../src/operator/doctor/doctor.ts';
import type { ServerMeasures } from '../../../src/operator/doctor/reports.ts';
import { connectionConfig, withConnection } from '../../../src/postgres/connection.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { use } from '../../support/use.ts';

describe('doctor on the settings of a server', () => {
  const server = use(() =>
    createDedicatedServer(['autovacuum=on', 'autovacuum_naptime=1h', 'max_slot_wal_keep_size=-1']),
  );

  const good: ServerSettings = {
    version: 180_004,
    connections: 97,
    naptime: 60,
    initSync: 'fsync',
    hasSyncfs: true,
    slotWal: -1,
    walLevel: 'replica',
    archiveMode: 'on',
    archiver: '/opt/archive %p %f',
    archivedAt: new Date(0),
    archiveFails: false,
    embedded: false,
    databases: 100,
    slots: 0,
    receivers: 0,
    lagBytes: null,
    oldest: 'postgres',
    oldestAge: 200_000_000,
  };
  const findingsOf = (changed: Partial<ServerSettings>) =>
    checkServerSettings({ ...good, ...changed }, 80).map(({ check, problem, remedy }) => [check, problem, remedy]);

  it('each setting that does not suit the installation is found, with the statement that corrects it', () => {
    const cases: [Partial<ServerSettings>, string, RegExp, RegExp][] = [
      [{ version: 150_007 }, 'server_version', /is PostgreSQL 15, tenants need 16/, /Upgrade/],
      [
        { connections: 79 },
        'too_few_connections',
        /accepts 79 connections, CONNECTION_BUDGET is 80/,
        /max_connections/,
      ],
      [{ connections: 95 }, 'few_connections', /may need 16 more/, /max_connections/],
      [
        { oldestAge: 1_000_000_001 },
        'old_transaction_ids',
        /database postgres .* 1000000001 transactions/,
        /autovacuum/,
      ],
      [{ databases: 121 }, 'server_setting', /autovacuum_naptime is 60 s for 121 databases/, /naptime = '61s'/],
      [{ databases: 1_000 }, 'server_setting', /starts a worker every 0.1 s/, /naptime = '500s'/],
      [{ databases: 200 }, 'server_setting', /recovery_init_sync_method is fsync/, /= 'syncfs'; select pg_reload_conf/],
      [{ slots: 1 }, 'server_setting', /max_slot_wal_keep_size has no limit/, /max_slot_wal_keep_size = '10GB'/],
      [{ archiveMode: 'off' }, 'wal_not_archived', /since 1970-01-01T.*archive_mode is off/, /archive_mode = 'on'/],
      [
        { archiveMode: 'off', archivedAt: null, embedded: true },
        'wal_not_archived',
        /nothing was archived so far/,
        /restart/,
      ],
      [{ archiver: '' }, 'wal_not_archived', /archive_command is '', which archives nothing/, /archive_command/],
      [{ archiver: '/bin/true' }, 'wal_not_archived', /is '\/bin\/true', which archives nothing/, /archive_command/],
      [
        { archiveFails: true },
        'wal_not_archived',
        /cannot be archived, .* since 1970-01-01T/,
        /Correct archive_command/,
      ],
      [{ archiveFails: true, embedded: true, archivedAt: null }, 'wal_not_archived', /nothing was so far/, /make room/],
      [{ walLevel: 'minimal' }, 'server_setting', /wal_level is minimal/, /wal_level = 'replica'/],
    ];
    expect(findingsOf({})).to.deep.equal([]);
    for (const [changed, check, problem, remedy] of cases) {
      const found = findingsOf(changed).find(([, text]) => problem.test(text as string));
      expect(found?.[0], JSON.stringify(changed)).to.equal(check);
      expect(found?.[2]).to.match(remedy);
    }
  });

  it('settings that suit many databases are no findings', () => {
    expect(
      findingsOf({ databases: 5_000, naptime: 2_500, initSync: 'syncfs', slots: 2, slotWal: 10_240 }),
    ).to.deep.equal([]);
    expect(findingsOf({ databases: 5_000, naptime: null, hasSyncfs: false })).to.deep.equal([]);
    expect(findingsOf({ archivedAt: null })).to.deep.equal([]);
  });

  it('the settings of a server are read as the server has them', async () => {
    const settings = await withConnection(server.url, readServerSettings);
    const { oldestAge, ...rest } = settings;
    expect(oldestAge).to.be.within(1, 1_000_000);
    expect(rest).to.deep.include({ connections: 117, naptime: 3_600, slotWal: -1, walLevel: 'replica', slots: 0 });
    expect(rest.version).to.be.greaterThan(160_000);
    const [found] = await server.sql<{ count: number }>('select count(*)::int from pg_database');
    expect([rest.initSync, rest.databases]).to.deep.equal(['fsync', found?.count]);
  });

  it('an embedded server that discards the write-ahead log is no finding, and one that fails to archive it is', async () => {
    const { archiver, archiveFails, embedded } = await withConnection(server.url, readServerSettings);
    expect({ archiver, archiveFails, embedded }).to.deep.equal({
      archiver: 'true',
      archiveFails: false,
      embedded: true,
    });
    expect((await diagnose(server.installation)).findings).to.deep.equal([]);
    const archiveWith = async (command: string): Promise<void> => {
      await server.sql(`alter system set archive_command = '${command}'`);
      await server.sql('select pg_reload_conf()');
    };
    await archiveWith('false');
    await server.sql('select pg_current_xact_id(), pg_switch_wal()');
    const [found] = await eventually(async () => {
      const { findings } = await diagnose(server.installation);
      return findings.length > 0 && findings;
    }, 30_000);
    expect([found?.check, found?.severity]).to.deep.equal(['wal_not_archived', 'warning']);
    await archiveWith('true');
    await eventually(async () => (await diagnose(server.installation)).findings.length === 0, 30_000);
  });

  it('the report of doctor says how far the last standby is behind, and until when the log is archived', async () => {
    const [before] = (await diagnose(server.installation)).measured;
    expect(before).to.deep.include({ server: 'default', receivers: 0, lagBytes: null, archiveFails: false });
    expect(Date.parse(before?.archivedAt ?? '')).to.be.greaterThan(0);
    const [row] = await server.sql<{ lsn: string; bytes: number }>(
      `select pg_current_wal_lsn()::text as lsn, (pg_current_wal_lsn() - '0/1')::float8 as bytes`,
    );
    const options = { ...connectionConfig(server.url, 'probe'), replication: 'true' };
    const standby = new pg.Client(options as pg.ClientConfig);
    standby.on('error', () => {}); // the server ends first
    await standby.connect();
    const streaming = standby.query(`START_REPLICATION PHYSICAL ${row?.lsn}`);
    await Promise.race([once(standby.connection, 'replicationStart'), streaming]);
    streaming.catch(() => {}); // it ends with its connection
    const status = Buffer.alloc(34, 'r');
    for (const [at, value] of [1n, 1n, 1n, 0n].entries()) status.writeBigInt64BE(value, 1 + 8 * at);
    const { sendCopyFromChunk } = standby.connection as unknown as { sendCopyFromChunk(chunk: Buffer): void };
    sendCopyFromChunk.call(standby.connection, status); // it has written, flushed and applied up to 0/1
    const measured = await eventually(async () => {
      const [after] = (await diagnose(server.installation)).measured;
      return after?.lagBytes && after;
    });
    expect(measured).to.deep.include({ receivers: 1 });
    expect((measured as ServerMeasures).lagBytes).to.be.at.least(row?.bytes ?? 0);
    standby.connection.stream.destroy();
    await eventually(async () => (await diagnose(server.installation)).measured[0]?.receivers === 0);
  });

  it('doctor exits with 1 for too few connections, and with 0 for a replication slot that may fill the disk', async () => {
    expect((await diagnose(server.installation)).findings).to.deep.equal([]);
    await server.sql(`select pg_create_physical_replication_slot('nobody')`);
    const doctor = (budget: string) =>
      runCommand('scripts/tenant.ts', ['doctor', '--json'], { ...server.environment, CONNECTION_BUDGET: budget });
    const [enough, tooFew] = [await doctor('97'), await doctor('118')];
    expect([enough.code, tooFew.code]).to.deep.equal([0, 1]);
    const checksOf = ({ stdout }: { stdout: string }) =>
      JSON.parse(stdout).findings.map(({ check, severity }: Record<string, string>) => `${severity} ${check}`);
    expect(checksOf(enough)).to.deep.equal(['warning server_setting']);
    expect(checksOf(tooFew)).to.deep.equal(['error too_few_connections', 'warning server_setting']);
  });
});
