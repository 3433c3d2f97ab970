import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import type pg from 'pg';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { openConsole } from '../operator/console/console-client.ts';
import { backupSettings } from '../support/backup-settings.ts';
import { eventually } from '../support/eventually.ts';
import { isAlive, seeProcesses, signalProcess } from '../support/processes.ts';
import { runCommand } from '../support/run-command.ts';
import { controlSql, useWorld } from '../support/world.ts';

describe('drill: commands of a console that ends', () => {
  const world = useWorld();

  it('a signal ends the console when the commands that it runs have ended', async () => {
    const ending = await openConsole(world.environment, ['--no-browser']);
    await ending.submit('/operations/doctor', { step: 'run' });
    expect(await ending.stop()).to.equal(0);

    const left = await eventually(async () => {
      const rows = await controlSql<{ pid: number }>(
        world,
        `select pid from processes where kind = 'command' and seen_at > now() - interval '5 s'`,
      );
      return rows.filter(({ pid }) => isAlive(pid)).length === 0;
    });
    expect(left).to.equal(true);
  });

  it('a command that is ended early, by a button and then with its console, finishes what it has begun', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'archives-'));
    const environment = { ...world.environment, ...(await backupSettings(folder)) };
    expect((await runCommand('scripts/tenant.ts', ['backup', 'init'], environment)).code).to.equal(
      0,
    );

    const ending = await openConsole(environment, ['--no-browser']);
    let stopped: Promise<number | null> | undefined;

    await withConnection(world.acme.adminUrl, async client => {
      await client.query('begin; lock table countries in access exclusive mode');
      const { path } = await ending.submit('/operations/backup/run', { slug: 'acme', step: 'run' });
      await waitingFor(client, 'countries');

      expect((await ending.submit(`${path}/cancel`, {})).text)
        .to.include('It ends early.')
        .and.not.include('id="cancel"');

      const cancelledAt = performance.now();
      // Two signals within 1 s count as one.
      await eventually(() => performance.now() - cancelledAt > 1_100);

      stopped = ending.stop();
      await eventually(
        async () => (await fetch(ending.origin).catch(() => undefined)) === undefined,
      );
    });

    expect(await stopped).to.equal(0);

    const listed = await runCommand(
      'scripts/tenant.ts',
      ['backup', 'list', 'acme', '--json'],
      environment,
    );
    expect(JSON.parse(listed.stdout)).to.have.length(1);

    await rm(folder, { recursive: true, force: true });
  });

  it('a command whose console was killed goes on, and ends early without a loss when it gets a signal', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'archives-'));
    const environment = { ...world.environment, ...(await backupSettings(folder)) };
    expect((await runCommand('scripts/tenant.ts', ['backup', 'init'], environment)).code).to.equal(
      0,
    );

    const killed = await openConsole(environment, ['--no-browser']);
    await withConnection(world.acme.adminUrl, async client => {
      await client.query('begin; lock table countries in access exclusive mode');
      await killed.submit('/operations/backup/run', { slug: 'acme', step: 'run' });
      await waitingFor(client, 'countries');
      const command = (await seeProcesses()).find(({ parent }) => parent === killed.process.pid);

      killed.process.kill('SIGKILL');
      await eventually(
        async () => (await fetch(killed.origin).catch(() => undefined)) === undefined,
      );
      signalProcess(command?.pid, 'SIGTERM');
    });

    const lastState = async () => {
      const rows = await controlSql<{ state: string }>(
        world,
        `select state from operator_actions where command = 'backup run' order by id desc limit 1`,
      );
      return rows[0]?.state;
    };

    await eventually(async () => (await lastState()) === 'done');
    await rm(folder, { recursive: true, force: true });
  });
});

/** Waits until a session waits for a lock of a table. */
async function waitingFor(client: pg.Client, table: string): Promise<void> {
  await eventually(async () => {
    const { rows } = await client.query(
      'select from pg_locks where not granted and relation = $1::regclass',
      [table],
    );
    return rows.length > 0;
  });
}
