import { once } from 'node:events';
import { expect } from 'chai';
import pg from 'pg';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import {
  checkServerSettings,
  readServerSettings,
  type ServerSettings,
} from '../../../src/operator/doctor/check-server-settings.ts';
import { diagnose } from '../../../src/operator/doctor/doctor.ts';
import type { ServerMeasures } from '../../../src/operator/doctor/reports.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { use } from '../../support/use.ts';

describe('doctor on the settings of a server', () => {
  const server = use(() => createDedicatedServer(['autovacuum=on', 'autovacuum_naptime=1h']));

  const good: ServerSettings = {
    version: 180_004,
    connections: 97,
    archivedAt: new Date(0),
    archiveFails: false,
    databases: 100,
    receivers: 0,
    lagBytes: null,
    oldest: 'postgres',
    oldestAge: 200_000_000,
  };
  const findingsOf = (changed: Partial<ServerSettings>) =>
    checkServerSettings({ ...good, ...changed }, 80).map(({ check, problem, remedy }) => [
      check,
      problem,
      remedy,
    ]);

  it('work that a server will refuse, or cannot archive, is a warning with its remedy', () => {
    const cases: [Partial<ServerSettings>, string, RegExp, RegExp][] = [
      [{ version: 150_007 }, 'server_version', /is PostgreSQL 15, tenants need 16/, /Upgrade/],
      [
        { connections: 95 },
        'few_connections',
        /accepts 95 connections; .* may need 16 more/,
        /max_connections/,
      ],
      [{ connections: 79 }, 'few_connections', /accepts 79 connections/, /lower CONNECTION_BUDGET/],
      [
        { oldestAge: 1_000_000_001 },
        'old_transaction_ids',
        /database postgres .* 1000000001 transactions/,
        /autovacuum/,
      ],
      [
        { archiveFails: true },
        'wal_not_archived',
        /cannot be archived, .* since 1970-01-01T/,
        /Correct archive_command/,
      ],
      [
        { archiveFails: true, archivedAt: null },
        'wal_not_archived',
        /nothing was so far/,
        /make room/,
      ],
    ];
    expect(findingsOf({})).to.deep.equal([]);

    for (const [changed, check, problem, remedy] of cases) {
      const [found, ...others] = findingsOf(changed);

      expect(others, JSON.stringify(changed)).to.deep.equal([]);
      expect(found?.[0]).to.equal(check);
      expect(found?.[1]).to.match(problem);
      expect(found?.[2]).to.match(remedy);
    }
  });

  it('doctor reads the settings that the server really has', async () => {
    const settings = await withConnection(server.url, readServerSettings);
    const { oldestAge, ...rest } = settings;
    expect(oldestAge).to.be.within(1, 1_000_000);
    expect(rest).to.deep.include({ connections: 117, archiveFails: false, receivers: 0 });
    expect(rest.version).to.be.greaterThan(160_000);
    const [found] = await server.sql<{ count: number }>('select count(*)::int from pg_database');
    expect(rest.databases).to.equal(found?.count);
  });

  it('a server that archives nothing is no finding, and one that fails to archive is a warning', async () => {
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
    expect(found).to.include({ check: 'wal_not_archived', severity: 'warning' });

    await archiveWith('true');
    await eventually(
      async () => (await diagnose(server.installation)).findings.length === 0,
      30_000,
    );
  });

  it('the report of doctor says how far the last standby is behind, and until when the log is archived', async () => {
    const [before] = (await diagnose(server.installation)).measured;
    expect(before).to.deep.include({
      server: 'default',
      receivers: 0,
      lagBytes: null,
      archiveFails: false,
    });
    expect(Date.parse(before?.archivedAt ?? '')).to.be.greaterThan(0);

    const [row] = await server.sql<{ lsn: string; bytes: number }>(
      `select pg_current_wal_lsn()::text as lsn, (pg_current_wal_lsn() - '0/1')::float8 as bytes`,
    );

    const options = {
      connectionString: server.url,
      application_name: 'standby',
      replication: 'true',
    };
    const standby = new pg.Client(options as pg.ClientConfig);
    standby.on('error', () => {}); // the server ends first
    await standby.connect();

    const streaming = standby.query(`START_REPLICATION PHYSICAL ${row?.lsn}`);
    await Promise.race([once(standby.connection, 'replicationStart'), streaming]);
    streaming.catch(() => {}); // the stream ends with its connection

    const status = Buffer.alloc(34, 'r');
    for (const [at, value] of [1n, 1n, 1n, 0n].entries()) status.writeBigInt64BE(value, 1 + 8 * at);
    const { sendCopyFromChunk } = standby.connection as unknown as {
      sendCopyFromChunk(chunk: Buffer): void;
    };
    // The status says that the standby has written, flushed and applied up to 0/1.
    sendCopyFromChunk.call(standby.connection, status);

    const measured = await eventually(async () => {
      const [after] = (await diagnose(server.installation)).measured;
      return after?.lagBytes && after;
    });
    expect(measured).to.deep.include({ receivers: 1 });
    expect((measured as ServerMeasures).lagBytes).to.be.at.least(row?.bytes ?? 0);

    standby.connection.stream.destroy();
    await eventually(
      async () => (await diagnose(server.installation)).measured[0]?.receivers === 0,
    );
  });

  it('doctor exits with 0 for too few connections, and a replication slot that nobody reads is no finding', async () => {
    await server.sql(`select pg_create_physical_replication_slot('nobody')`);

    const environment = { ...server.environment, CONNECTION_BUDGET: '118' };
    const { code, stdout } = await runCommand(
      'scripts/tenant.ts',
      ['doctor', '--json'],
      environment,
    );

    const found = JSON.parse(stdout).findings.map(
      ({ check, severity }: Record<string, string>) => `${severity} ${check}`,
    );
    expect(code).to.equal(0);
    expect(found).to.deep.equal(['warning few_connections']);
  });
});
