import { rm } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import {
  type DatabaseGoal,
  type DatabaseStep,
  databaseProtocol,
} from '../../src/operator/databases/database-protocol.ts';
import { withConnection } from '../../src/postgres/connection.ts';
import type { Client } from '../support/client.ts';
import { startScript } from '../support/command-line.ts';
import { killedRestore } from '../support/paused-run.ts';
import { runCommand } from '../support/run-command.ts';
import { makeServerFolder } from '../support/server-folder.ts';
import { postgresUrl } from '../support/test-server.ts';
import { controlSql, createWorld, type World } from '../support/world.ts';

const path = '/api/v1/EntityStatus';
const stepsOf = (goal: DatabaseGoal): DatabaseStep[] => [...databaseProtocol(goal, false)];
const swapSteps = stepsOf('switch');
const lostSteps = stepsOf('replace');

describe('drill: killed swaps, and killed restores of lost databases', () => {
  let world: World;
  let folder: string;
  let environment: Record<string, string>;
  let acme: Client;
  let globex: Client;
  const pauses: number[] = [];

  before(async () => {
    folder = await makeServerFolder('archives');
    world = await createWorld({ ACQUIRE_TIMEOUT_MS: '2000' });
    environment = { ...world.environment, BACKUP_TARGET: folder };
    [acme, globex] = [await world.login(world.acme), await world.login(world.globex)];
    expect((await acme.post(path, { Title: 'restored' })).status).to.equal(201);
    await run('backup', 'init');
    await run('backup', 'run', '--all');
    await run('restore', 'acme', '--archive', 'latest');
    expect((await acme.post(path, { Title: 'later' })).status).to.equal(201);
    await swap('swap');
  });
  after(async () => {
    await world.close();
    await rm(folder, { recursive: true, force: true });
  });

  async function run(...args: string[]) {
    const { code, stdout, stderr } = await runCommand('scripts/tenant.ts', [...args, '--json'], environment);
    expect(code, stderr + stdout).to.equal(0);
    return stdout;
  }
  /** Gives acme the restored or the former data, also when it has it already. */
  const swap = async (direction: 'swap' | 'back') => {
    const { pauseMs } = JSON.parse(await run('restore', direction, 'acme', '--yes'));
    if (pauseMs > 0) pauses.push(pauseMs);
  };
  const titles = async (client: Client): Promise<string[]> => {
    const { status, body } = await client.get(path, { 'Cache-Control': 'no-cache' });
    return status === 200 ? body.map(({ Title }: { Title: string }) => Title) : [`status ${status}`];
  };
  const findings = async (): Promise<{ check: string; tenant: string; remedy: string }[]> => {
    const { stdout } = await runCommand('scripts/tenant.ts', ['doctor', '--json'], environment);
    return JSON.parse(stdout).findings.filter(({ tenant }: { tenant: string | null }) => tenant?.startsWith('acme'));
  };
  const killBefore = async (kind: string, step: string): Promise<void> => {
    const killed = await startScript(killedRestore, [kind, 'acme', step], environment).ended;
    expect(killed.signal, killed.stderr).to.equal('SIGKILL');
  };
  /** Returns which of the two databases the tenant has, by a record that only one of them has. */
  const hasFormer = async (): Promise<boolean> => (await titles(acme)).includes('later');

  for (const direction of ['swap', 'back'] as const)
    for (const step of swapSteps)
      for (const next of ['swap', 'back'] as const)
        it(`${direction} that is killed before the step ${step} is ended by ${next}, and nothing is lost`, async function () {
          this.timeout(60_000);
          await swap(direction === 'swap' ? 'back' : 'swap');
          await killBefore(direction, step);
          const found = (await findings()).map(({ check }) => check);
          const isFenced =
            swapSteps.indexOf(step) > swapSteps.indexOf('announce fence') &&
            swapSteps.indexOf(step) <= swapSteps.indexOf('serve');
          expect(found.includes('unfinished_switch')).to.equal(isFenced);
          // Exactly one database serves the tenant, or its requests wait.
          const seen = await titles(acme);
          const isHeld = seen[0] === 'status 503';
          if (!isHeld) expect(seen).to.include('restored');
          const isBegun = swapSteps.indexOf(step) > swapSteps.indexOf('exchange');
          if (!isHeld) expect(seen.includes('later')).to.equal((direction === 'swap') !== isBegun);
          const Title = `after ${direction} before ${step} ${next}`;
          const written = (await acme.post(path, { Title })).status;
          expect(written).to.equal(isHeld ? 503 : 201);
          expect(await titles(globex)).not.to.include('restored');
          await swap(next);
          expect(await hasFormer()).to.equal(next === 'back');
          expect(await findings()).to.deep.equal([]);
          // A record that was acknowledged is in the database that the tenant had then.
          if (written === 201) {
            const isInFormer = (direction === 'swap') !== isBegun;
            await swap(isInFormer ? 'back' : 'swap');
            expect(await titles(acme)).to.include(Title);
          }
        });

  it('the requests of a tenant wait for at most 1 s in every swap', () => {
    pauses.sort((a, b) => a - b);
    console.log({ swaps: pauses.length, p50: pauses[pauses.length >> 1], worst: pauses.at(-1) });
    expect(pauses.at(-1)).to.be.below(1_000);
  });

  for (const step of stepsOf('place'))
    it(`a restore beside that is killed before the step ${step} is begun anew by the next one, and nothing of it is left`, async function () {
      this.timeout(60_000);
      await killBefore('beside', step);
      const left = (await findings()).map(({ check }) => check);
      expect(left).to.deep.equal(['condemn leftovers', 'reserve'].includes(step) ? [] : ['leftover_database']);
      const { database } = JSON.parse(await run('restore', 'acme', '--archive', 'latest'));
      expect(await findings()).to.deep.equal([]);
      const diff = JSON.parse(await run('restore', 'diff', 'acme', '--database', database));
      expect(diff).to.include({ tenant: 'acme', database });
      await run('databases', 'drop', 'acme', database, '--yes');
      expect(await findings()).to.deep.equal([]);
    });

  for (const step of lostSteps)
    it(`a restore of a lost database that is killed before the step ${step} is ended by the next one`, async function () {
      this.timeout(60_000);
      const { database } = JSON.parse(await run('show', 'acme'));
      await withConnection(postgresUrl(), client => client.query(`drop database "${database}" with (force)`));
      await killBefore('lost', step);
      await sleep(1_000);
      expect(await titles(acme)).to.deep.equal(['status 503']);
      expect((await acme.post(path, { Title: 'lost' })).status).to.equal(503);
      const checks = (await findings()).map(({ check }) => check);
      const isExchanged = step === 'open current' || step === 'serve';
      const isFenced = lostSteps.indexOf(step) > lostSteps.indexOf('announce fence');
      expect(checks, checks.join(' ')).to.include(isFenced ? 'unfinished_switch' : 'missing_database');
      // A migration run must not let an empty database be served.
      await runCommand('scripts/tenant.ts', ['migrate', '--all'], environment);
      expect(await titles(acme)).to.deep.equal(['status 503']);
      // What is exchanged is complete: it is not lost any more, and has only to be opened.
      await run(...(isExchanged ? ['databases', 'prune', 'acme'] : ['restore', 'acme', '--lost']));
      expect(await titles(acme))
        .to.include('restored')
        .and.not.include('lost');
      expect(await findings()).to.deep.equal([]);
      expect((await acme.post(path, { Title: 'later' })).status).to.equal(201);
    });

  it('a process that does not confirm the fence stops a restore before anything is restored, and no fence is left', async () => {
    const { database } = JSON.parse(await run('show', 'acme'));
    const onServer = async (text: string) => (await withConnection(postgresUrl(), client => client.query(text))).rows;
    await onServer(`drop database "${database}" with (force)`);
    const names = () => onServer('select datname from pg_database order by 1');
    const before = await names();
    await controlSql(
      world,
      `insert into processes (id, kind, host, pid, build, seen_at, control_head)
       values (gen_random_uuid(), 'service', 'silent', 1, 'x', now() + interval '1 hour', '9999')`,
    );
    const { code, stderr } = await runCommand('scripts/tenant.ts', ['restore', 'acme', '--lost'], environment);
    expect(code).to.equal(1);
    expect(stderr).to.include('did not confirm the fence').and.include('process 1 on silent');
    expect(await names()).to.deep.equal(before);
    expect(await controlSql(world, 'select from tenant_fences')).to.deep.equal([]);
    await controlSql(world, `delete from processes where host = 'silent'`);
    await run('restore', 'acme', '--lost');
    expect(await titles(acme)).to.include('restored');
  });
});
