import { expect } from 'chai';
import type pg from 'pg';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import {
  connectForeign,
  fillQueue,
  holdQueue,
  smallNotifyQueue,
} from '../../support/notify-queue.ts';
import { readSlot } from '../../support/read-slot.ts';
import { runCommand } from '../../support/run-command.ts';
import { use } from '../../support/use.ts';

interface Finding {
  check: string;
  severity: string;
  problem: string;
  remedy: string;
}

describe('doctor beside other applications on the server', () => {
  const server = use(() =>
    createDedicatedServer([
      smallNotifyQueue,
      'max_prepared_transactions=4',
      'max_wal_senders=2',
      'wal_level=logical',
      'max_wal_size=32MB',
      'min_wal_size=32MB',
    ]),
  );
  const sessions: pg.Client[] = [];

  before(async () => {
    await server.sql('create database reports');
    for (const slug of ['acme', 'globex']) await server.provision(slug);
  });
  afterEach(async () => {
    await Promise.all(sessions.splice(0).map(session => session.end().catch(() => {})));
    expect(await doctor()).to.deep.equal([]);
  });

  async function connect(application: string): Promise<pg.Client> {
    const session = await connectForeign(server, application);
    sessions.push(session);
    return session;
  }

  async function doctor(...args: string[]): Promise<Finding[]> {
    const { stdout, stderr } = await runCommand(
      'scripts/tenant.ts',
      ['doctor', '--json', ...args],
      server.environment,
    );
    expect(stderr).to.equal('');
    return JSON.parse(stdout).findings;
  }

  /** Fills more segments of the write-ahead log than a slot may hold unnoticed. */
  async function writeLog(session: pg.Client): Promise<void> {
    for (let segment = 0; segment < 4; segment++) {
      await session.query(`select pg_logical_emit_message(false, 'fill', 'x'), pg_switch_wal()`);
    }
  }

  /** Expects one warning of this kind, and that the command of its remedy ends it. */
  async function expectMended(check: string, problem: RegExp): Promise<void> {
    const findings = await doctor();
    expect(
      findings.map(finding => [finding.check, finding.severity]),
      JSON.stringify(findings),
    ).to.deep.equal([[check, 'warning']]);
    expect(findings[0]?.problem).to.match(problem);

    const [, id = ''] =
      /: bin\/backoffice doctor --fix ([0-9a-f]{8})$/.exec(findings[0]?.remedy ?? '') ?? [];
    await doctor('--fix', id);
    expect(await doctor()).to.deep.equal([]);
  }

  it('a session that keeps the queue of notifications half full is named, and not one with an older transaction', async () => {
    const older = await connect('Older Tool');
    await older.query('begin; select 1');
    const holder = await connect('Report Tool');
    await holdQueue(holder);
    expect(await doctor()).to.deep.equal([]);

    await fillQueue(await connect('filler'), 0.5);

    await expectMended(
      'notify_queue_held',
      /^Report Tool of login postgres in database reports \(pid \d+\) keeps the queue of notifications/,
    );
  });

  it('a session that has filled the queue is named while no command can change anything', async () => {
    await holdQueue(await connect('Report Tool'));
    await fillQueue(await connect('filler'), 1);
    const refused = await runCommand(
      'scripts/tenant.ts',
      ['suspend', 'globex', '--yes'],
      server.environment,
    );
    expect(refused.stderr).to.match(/queue of notifications is full.*doctor names the session/);

    await expectMended('notify_queue_held', /^Report Tool of login postgres in database reports/);
  });

  it('sessions of others that leave too few connections are named by their owner', async () => {
    for (let count = 0; count < 30; count++) await connect('Connection Hoarder');

    const [finding, ...others] = await doctor();

    expect(others).to.deep.equal([]);
    expect(finding?.check).to.equal('connections_taken');
    expect(finding?.problem).to.match(
      /most are of Connection Hoarder of login postgres in database reports$/,
    );
  });

  for (const mode of ['share', 'share row exclusive', 'exclusive']) {
    it(`a lock of a catalog that all databases share, in ${mode} mode, is named with its session`, async () => {
      const session = await connect('Catalog Tool');
      await session.query(`begin; lock table pg_database in ${mode} mode`);

      await expectMended(
        'catalog_locked',
        /^Catalog Tool of login postgres in database reports \(pid \d+\) holds a lock of pg_database/,
      );
    });
  }

  it('a prepared transaction of another application is named with its login and its database', async () => {
    const session = await connect('Transaction Manager');
    await session.query(
      `create table orders (id integer); begin; insert into orders values (1); prepare transaction 'order 1'`,
    );

    await expectMended(
      'prepared_transaction',
      /^the prepared transaction order 1 of login postgres in database reports is open since/,
    );
  });

  it('a replication slot that nobody reads is named when it holds the write-ahead log', async () => {
    const session = await connect('Replication Tool');
    await session.query(`select pg_create_physical_replication_slot('forgotten', true)`);
    expect(await doctor()).to.deep.equal([]);

    await writeLog(session);

    await expectMended(
      'wal_held',
      /^replication slot forgotten holds the write-ahead log, and nobody reads it/,
    );
  });

  it('a replication slot whose reader is behind is named with its reader, and its remedy ends both', async () => {
    const session = await connect('Replication Tool');
    const { rows } = await session.query<{ lsn: string }>(
      `select lsn::text from pg_create_physical_replication_slot('slow', true)`,
    );
    const reader = await readSlot(databaseUrl(server.url, 'reports'), {
      application: 'Slow Standby',
      command: `START_REPLICATION SLOT "slow" PHYSICAL ${rows[0]?.lsn}`,
    });
    sessions.push(reader);

    await writeLog(session);

    await expectMended(
      'wal_held',
      /^replication slot slow holds the write-ahead log, because its reader Slow Standby of login postgres is behind/,
    );
  });

  it('a temporary replication slot that holds the write-ahead log ends with its session', async () => {
    const session = await connect('Table Tool');
    await session.query(`select pg_create_logical_replication_slot('rewrite', 'pgoutput', true)`);

    await writeLog(await connect('Replication Tool'));

    await expectMended(
      'wal_held',
      /^replication slot rewrite of database reports holds the write-ahead log, because its reader Table Tool of login postgres is behind/,
    );
  });
});
