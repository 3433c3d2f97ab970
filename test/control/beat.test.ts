import { randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { pino } from 'pino';
import { Beat, type Fleet } from '../../src/control/beat.ts';
import { beatTopic, changeChannel } from '../../src/control/change-topics.ts';
import { newProcess, type ProcessIdentity } from '../../src/control/process-identity.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { eventually } from '../support/eventually.ts';
import { controlSql, useWorld } from '../support/world.ts';

const budget = 32;
/** True for as many processes as fit: each needs four of the budget. */
const roomFor = (most: number) => (fleet: Fleet) => fleet.services <= most;

describe('beats of processes', () => {
  const world = useWorld();
  const log = pino({ level: 'silent' });
  const beats: Beat[] = [];

  before(() => world.service.stop());
  afterEach(async () => {
    await Promise.all(beats.splice(0).map(beat => beat.leave()));
    await controlSql(world, 'delete from processes');
  });

  function createBeat(kind: ProcessIdentity['kind'] = 'service', ownBudget = budget): Beat {
    const { pool, secrets } = world.installation;
    const beat = new Beat({ pool, process: newProcess(kind), budget: ownBudget, secrets, log });
    beats.push(beat);
    return beat;
  }

  /** Adds the row of a process that does not beat any more. */
  const addSilent = (ageSeconds: number, kind = 'service') =>
    controlSql(
      world,
      `insert into processes (id, kind, host, pid, build, seen_at, connection_budget)
       values (?, ?, 'elsewhere', 1, '0', clock_timestamp() - ? * interval '1 second', 20)`,
      [randomUUID(), kind, ageSeconds],
    );

  const rows = () =>
    controlSql<{ id: string; age: number }>(
      world,
      'select id, extract(epoch from clock_timestamp() - seen_at)::float8 as age from processes',
    );

  it('a process writes its row each second, and removes it when it ends', async () => {
    const beat = createBeat();
    await beat.join();
    const [first] = await rows();
    expect(first?.id).to.equal(beat.process.id);

    await controlSql(world, 'delete from processes');
    await eventually(async () => (await rows()).length === 1);

    await beat.leave();
    expect(await rows()).to.deep.equal([]);
  });

  it('each beat is notified on the change feed with the id of its process and its number', async () => {
    const beat = createBeat();
    const received: string[] = [];

    await withConnection(world.installation.controlUrl, async listener => {
      listener.on('notification', ({ payload = '' }) => received.push(payload));
      await listener.query(`listen ${changeChannel}`);
      await beat.join();
      await eventually(() => received.length >= 2);
    });

    const [first = '', second = ''] = received;
    expect(first).to.equal(`${beatTopic}:${beat.process.id}/1`);
    expect(second).to.equal(`${beatTopic}:${beat.process.id}/2`);
    expect(beat.sentAt(`${beat.process.id}/2`)).to.be.closeTo(performance.now(), 60_000);
    expect(beat.sentAt(`${randomUUID()}/2`)).to.equal(undefined);
  });

  it('a beat returns the running processes of the service and their smallest budget', async () => {
    await addSilent(0);
    await addSilent(0, 'command');
    await addSilent(6);
    await addSilent(-3_600);
    const beat = createBeat();

    await beat.join();

    expect(beat.fleet.services).to.equal(2);
    expect(beat.fleet.budget).to.equal(20);
  });

  it('a command is no process of the service', async () => {
    const service = createBeat();
    const command = createBeat('command', 8);

    await service.join();
    await command.join();

    expect(command.fleet.services).to.equal(1);
    await eventually(
      () => service.isConfirmed && service.fleet.services === 1 && service.fleet.budget === budget,
    );
  });

  it('a process that joins removes the rows of processes that have not beaten for a minute', async () => {
    await addSilent(61);
    await addSilent(30);

    await createBeat().join();

    expect(await rows()).to.have.length(2);
  });

  it('of processes that start at once, no more join than there is room for', async () => {
    const joined = await Promise.all(
      Array.from({ length: 4 }, () => createBeat().join(roomFor(3))),
    );

    expect(joined.filter(Boolean)).to.have.length(3);
  });

  it('a start waits until the row of a killed process has expired', async () => {
    await addSilent(2);

    expect(await createBeat().join(roomFor(1))).to.equal(true);
  });

  it('a process alone is settled at once, and one beside others after its second beat', async () => {
    const [first, second] = [createBeat(), createBeat()];
    await first.join();
    await second.join();
    expect(first.isSettled).to.equal(true);
    expect(second.isSettled).to.equal(false);

    await second.settle(60_000);

    expect(second.isSettled).to.equal(true);
    await eventually(() => first.fleet.services === 2);
  });

  it('a process whose beat is not confirmed for three seconds says so, and settles again after two beats', async () => {
    const beat = createBeat();
    await beat.join();
    await withConnection(world.installation.controlUrl, async blocker => {
      await blocker.query('begin');
      await blocker.query('lock table processes');
      await eventually(() => !beat.isConfirmed);
      await blocker.query('rollback');
    });

    await eventually(() => beat.isConfirmed);
    expect(beat.isSettled).to.equal(false);
    await eventually(() => beat.isSettled);
  });

  it('a beat gets a connection of the pool before all requests that wait for one', async () => {
    const beat = createBeat();
    await beat.join();
    const { pool } = world.installation;
    let isLoaded = true;

    // Each waits for its turn, so the queue is never shorter than 100. On a busy machine, the
    // time of one that waits can end, which is no matter of the beat.
    const waiting = Array.from({ length: 100 }, async () => {
      while (isLoaded) await pool.query('select pg_sleep(0.05)').catch(() => {});
    });
    let confirmed = 0;
    beat.onChange(() => confirmed++);
    await eventually(() => confirmed >= 4);
    expect(beat.isConfirmed).to.equal(true);
    isLoaded = false;
    await Promise.all(waiting);
  });
});
