import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import {
  type DatabaseGoal,
  type DatabaseStep,
  databaseProtocol,
} from '../../src/operator/databases/protocol/database-protocol.ts';
import { useRestoredTenant } from '../support/restored-tenant.ts';
import { postgresUrl } from '../support/test-server.ts';
import { controlSql } from '../support/world.ts';

const stepsOf = (goal: DatabaseGoal): DatabaseStep[] => [...databaseProtocol(goal, false)];
const swapSteps = stepsOf('switch');
const lostSteps = stepsOf('replace');

describe('drill: killed swaps, and killed restores of lost databases', () => {
  const { world, globex, command, run, post, titles, checks, killBefore } = useRestoredTenant();
  const pauses: number[] = [];
  /** Requests of the tenant that were refused while nobody killed its swap. */
  const refused: string[] = [];

  before(() => swap('swap'));

  /** Gives acme the restored or the former data, also when it has it already. */
  async function swap(direction: 'swap' | 'back'): Promise<void> {
    const { pauseMs } = JSON.parse(await run('restore', direction, 'acme', '--yes'));
    if (pauseMs > 0) pauses.push(pauseMs);
  }

  /** Swaps while the tenant reads, one request after the other: they wait, and are served. */
  async function swapServed(direction: 'swap' | 'back'): Promise<void> {
    let isOver = false;
    const swapped = swap(direction).finally(() => {
      isOver = true;
    });

    while (!isOver) {
      refused.push(...(await titles()).filter(title => title.startsWith('status ')));
    }
    await swapped;
  }
  async function kill(kind: string, step: string): Promise<void> {
    const { signal, stderr } = await killBefore(kind, step);
    expect(signal, stderr).to.equal('SIGKILL');
  }
  const onServer = (text: string) =>
    withConnection(postgresUrl(), async client => (await client.query(text)).rows);
  async function lose(): Promise<void> {
    const { database } = JSON.parse(await run('show', 'acme'));
    await onServer(`drop database "${database}" with (force)`);
  }

  for (const direction of ['swap', 'back'] as const) {
    for (const step of swapSteps) {
      for (const next of ['swap', 'back'] as const) {
        it(`${direction} that is killed before the step ${step} is ended by ${next}, and nothing is lost`, async () => {
          await swapServed(direction === 'swap' ? 'back' : 'swap');
          await kill(direction, step);

          const isAfter = (other: DatabaseStep) =>
            swapSteps.indexOf(step) > swapSteps.indexOf(other);
          const isFenced = isAfter('announce fence') && !isAfter('serve');
          expect((await checks()).includes('unfinished_switch')).to.equal(isFenced);

          // Exactly one database serves the tenant, or its requests wait.
          const seen = await titles();
          const isHeld = seen[0] === 'status 503';
          const isInFormer = (direction === 'swap') !== isAfter('exchange');

          if (!isHeld) {
            expect(seen.includes('restored')).to.equal(true);
            expect(seen.includes('later')).to.equal(isInFormer);
          }

          const Title = `after ${direction} before ${step} ${next}`;
          const written = await post(Title);
          expect(written).to.equal(isHeld ? 503 : 201);
          expect(await titles(globex)).not.to.include('restored');

          await swap(next);
          expect((await titles()).includes('later')).to.equal(next === 'back');
          expect(await checks()).to.deep.equal([]);

          // A record that was acknowledged is in the database that the tenant had then.
          if (written === 201) {
            await swap(isInFormer ? 'back' : 'swap');
            expect(await titles()).to.include(Title);
          }
        });
      }
    }
  }

  it('the requests of a tenant wait for every swap that nobody kills, and none is refused', () => {
    pauses.sort((a, b) => a - b);
    console.log({ swaps: pauses.length, p50: pauses[pauses.length >> 1], worst: pauses.at(-1) });
    expect(pauses).not.to.deep.equal([]);
    expect(refused).to.deep.equal([]);
  });

  for (const step of stepsOf('place')) {
    it(`a restore beside that is killed before the step ${step} is begun anew by the next one, and nothing of it is left`, async () => {
      await kill('beside', step);
      expect(await checks()).to.deep.equal(
        ['condemn leftovers', 'reserve'].includes(step) ? [] : ['leftover_database'],
      );

      const { database } = JSON.parse(await run('restore', 'acme', '--archive', 'latest'));
      expect(await checks()).to.deep.equal([]);

      const diff = JSON.parse(await run('restore', 'diff', 'acme', '--database', database));
      expect(diff).to.include({ tenant: 'acme', database });
      await run('databases', 'drop', 'acme', database, '--yes');
      expect(await checks()).to.deep.equal([]);
    });
  }

  for (const step of lostSteps) {
    it(`a restore of a lost database that is killed before the step ${step} is ended by the next one`, async () => {
      await lose();
      await kill('lost', step);

      await sleep(1_000);
      expect(await titles()).to.deep.equal(['status 503']);
      expect(await post('lost')).to.equal(503);

      const isExchanged = step === 'open current' || step === 'serve';
      const isFenced = lostSteps.indexOf(step) > lostSteps.indexOf('announce fence');
      expect(await checks()).to.include(isFenced ? 'unfinished_switch' : 'missing_database');

      // A migration run must not let an empty database be served.
      await command('migrate', '--all');
      expect(await titles()).to.deep.equal(['status 503']);

      // A database that is exchanged is complete, and has only to be opened.
      await run(...(isExchanged ? ['databases', 'prune', 'acme'] : ['restore', 'acme', '--lost']));
      expect(await titles())
        .to.include('restored')
        .and.not.include('lost');
      expect(await checks()).to.deep.equal([]);
      expect(await post('later')).to.equal(201);
    });
  }

  it('a process that does not confirm the fence stops a restore before anything is restored, and no fence is left', async () => {
    await lose();
    const names = () => onServer('select datname from pg_database order by 1');
    const before = await names();

    await controlSql(
      world,
      `insert into processes (id, kind, host, pid, build, seen_at, control_head)
       values (gen_random_uuid(), 'service', 'silent', 1, 'x', now() + interval '1 minute', '9999')`,
    );

    const { code, stderr } = await command('restore', 'acme', '--lost');
    expect(code).to.equal(1);
    expect(stderr).to.include('did not confirm the fence').and.include('process 1 on silent');
    expect(await names()).to.deep.equal(before);
    expect(await controlSql(world, 'select from tenant_fences')).to.deep.equal([]);

    await controlSql(world, `delete from processes where host = 'silent'`);
    await run('restore', 'acme', '--lost');
    expect(await titles()).to.include('restored');
  });
});
