import { expect } from 'chai';
import { Supervision } from '../../../src/service/workers/supervision.ts';
import type {
  WorkerAction,
  WorkerReport,
} from '../../../src/service/workers/supervision-actions.ts';
import { maxEndMs, maxStartMs } from '../../../src/service/workers/worker-table.ts';
import { Random } from '../../simulation/random.ts';

const killed = { code: null, signal: 'SIGKILL' };
const endedWell = { code: 0, signal: null };

/** Returns actions as short texts: `fork 3`, `died 1`, `hand_over 2`. */
function texts(actions: WorkerAction[]): string[] {
  return actions.map(action => {
    if (action.kind === 'report') return reportText(action.report);
    if (action.kind === 'ended') return `ended ${action.exitCode} ${action.failure ?? ''}`.trim();
    return 'worker' in action ? `${action.kind} ${action.worker}` : action.kind;
  });
}

function reportText(report: WorkerReport): string {
  if (report.what === 'died' || report.what === 'leaving') {
    return `${report.what} ${report.worker} delay ${report.delayMs ?? 'none'}`;
  }
  return 'worker' in report ? `${report.what} ${report.worker}` : report.what;
}

/** Returns a supervision whose workers 1 to `processes` serve at time 0. */
function started(processes: number): Supervision {
  const supervision = new Supervision(processes);
  supervision.start(0);
  for (let worker = 1; worker <= processes; worker++) supervision.onStarted(worker, 0);
  return supervision;
}

describe('supervision of workers', () => {
  it('the first start forks all workers, and is complete when all of them serve', () => {
    const supervision = new Supervision(2);
    expect(texts(supervision.start(0))).to.deep.equal(['fork 1', 'fork 2']);
    expect(texts(supervision.onStarted(2, 5))).to.deep.equal(['started 2']);
    expect(texts(supervision.onStarted(1, 6))).to.deep.equal(['started 1', 'serving']);
    expect(supervision.serving).to.deep.equal([1, 2]);
    expect(supervision.nextAt).to.equal(Number.POSITIVE_INFINITY);
  });

  it('a worker that cannot start at the first start ends the others, and its text is the failure', () => {
    const supervision = new Supervision(2);
    supervision.start(0);
    supervision.onFailed(1, 'port 80 is in use.');
    expect(texts(supervision.onEnded(1, { code: 1, signal: null }, 1))).to.deep.equal(['stop 2']);
    expect(texts(supervision.onEnded(2, endedWell, 2))).to.deep.equal([
      'ended 1 port 80 is in use.',
    ]);
  });

  it('a worker that dies during the first start without a text is named by its exit code or signal', () => {
    const supervision = new Supervision(1);
    supervision.start(0);
    expect(texts(supervision.onEnded(1, killed, 1))).to.deep.equal([
      'ended 1 A worker process ended during the start (signal SIGKILL).',
    ]);
  });

  it('a dead worker is replaced at once, further ones after 0.5 s, 1 s and so on up to 30 s', () => {
    const supervision = started(1);
    const delays: number[] = [];
    let now = 0;

    for (let worker = 1; worker <= 10; worker++) {
      const [died] = supervision.onEnded(worker, killed, now);
      if (died?.kind !== 'report' || died.report.what !== 'died') throw new Error('no report');
      delays.push(died.report.delayMs ?? Number.NaN);

      if (supervision.serving.length === 0 && died.report.delayMs !== 0) {
        now = supervision.nextAt;
        expect(texts(supervision.tick(now - 1))).to.deep.equal([]);
        expect(texts(supervision.tick(now))).to.deep.equal([`fork ${worker + 1}`]);
      }
      supervision.onStarted(worker + 1, now);
    }

    expect(delays).to.deep.equal([
      0, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000,
    ]);
    expect(supervision.died).to.equal(10);
    expect(texts(supervision.onEnded(11, killed, now + 60_001))).to.deep.equal([
      'died 11 delay 0',
      'fork 12',
    ]);
  });

  it('a replacement that does not start is replaced too, after a delay', () => {
    const supervision = started(2);
    expect(texts(supervision.onEnded(1, killed, 0))).to.deep.equal(['died 1 delay 0', 'fork 3']);
    expect(texts(supervision.onEnded(3, killed, 1))).to.deep.equal(['died 3 delay 500']);
    expect(texts(supervision.tick(501))).to.deep.equal(['fork 4']);
  });

  it('a worker that does not start within a minute is killed and replaced', () => {
    const supervision = started(1);
    supervision.onEnded(1, killed, 0);
    expect(supervision.nextAt).to.equal(maxStartMs);
    expect(texts(supervision.tick(maxStartMs))).to.deep.equal(['killed 2', 'kill 2']);
    expect(supervision.nextAt).to.equal(Number.POSITIVE_INFINITY);
    expect(texts(supervision.onEnded(2, killed, maxStartMs))).to.deep.equal(['died 2 delay 500']);
  });

  it('a worker with a fault is replaced while it finishes its requests, and its end is no further death', () => {
    const supervision = started(2);
    expect(texts(supervision.onLeaving(1, 0))).to.deep.equal(['leaving 1 delay 0', 'fork 3']);
    expect(texts(supervision.onStarted(3, 1))).to.deep.equal(['started 3']);
    expect(texts(supervision.onEnded(1, { code: 1, signal: null }, 2))).to.deep.equal([
      'ended_badly 1',
    ]);
    expect(supervision.serving).to.deep.equal([2, 3]);
    expect(supervision.died).to.equal(1);
  });

  it('a restart replaces one worker after the other, each only when the new one serves', () => {
    const supervision = started(2);
    expect(texts(supervision.restart(0))).to.deep.equal(['restarting', 'fork 3']);
    expect(texts(supervision.onStarted(3, 1))).to.deep.equal(['started 3', 'hand_over 1']);
    expect(supervision.serving).to.deep.equal([2, 3]);
    expect(texts(supervision.onEnded(1, endedWell, 2))).to.deep.equal(['fork 4']);
    expect(texts(supervision.onStarted(4, 3))).to.deep.equal(['started 4', 'hand_over 2']);
    expect(texts(supervision.onEnded(2, endedWell, 4))).to.deep.equal(['restarted']);
    expect(supervision.serving).to.deep.equal([3, 4]);
    expect(supervision.died).to.equal(0);
  });

  it('a restart that is requested during a restart begins when that has ended', () => {
    const supervision = started(1);
    supervision.restart(0);

    expect(texts(supervision.restart(1))).to.deep.equal(['restart_queued']);
    expect(texts(supervision.restart(1))).to.deep.equal(['restart_queued']);

    supervision.onStarted(2, 2);
    expect(texts(supervision.onEnded(1, endedWell, 3))).to.deep.equal([
      'restarted',
      'restarting',
      'fork 3',
    ]);

    supervision.onStarted(3, 4);
    expect(texts(supervision.onEnded(2, endedWell, 5))).to.deep.equal(['restarted']);
  });

  it('a restart whose new worker cannot start ends, and leaves the old ones in service', () => {
    const supervision = started(2);
    supervision.restart(0);
    supervision.onFailed(3, 'the control database is newer.');
    const actions = supervision.onEnded(3, { code: 1, signal: null }, 1);

    expect(actions).to.deep.equal([
      {
        kind: 'report',
        report: { what: 'restart_failed', reason: 'the control database is newer.' },
      },
    ]);
    expect(supervision.serving).to.deep.equal([1, 2]);
    expect(supervision.nextAt).to.equal(Number.POSITIVE_INFINITY);
  });

  it('a worker that dies while a restart replaces it is not replaced twice', () => {
    const supervision = started(2);
    supervision.restart(0);
    expect(texts(supervision.onEnded(1, killed, 1))).to.deep.equal(['died 1 delay none']);
    expect(texts(supervision.onStarted(3, 2))).to.deep.equal(['started 3', 'fork 4']);
    supervision.onStarted(4, 3);
    expect(texts(supervision.onEnded(2, endedWell, 4))).to.deep.equal(['restarted']);
    expect(supervision.serving).to.deep.equal([3, 4]);
  });

  it('a new worker that dies while the old one still ends is replaced, and the restart goes on', () => {
    const supervision = started(1);
    supervision.restart(0);
    supervision.onStarted(2, 1);
    expect(texts(supervision.onEnded(2, killed, 2))).to.deep.equal(['died 2 delay 0', 'fork 3']);
    expect(texts(supervision.onEnded(1, endedWell, 3))).to.deep.equal(['restarted']);
    expect(texts(supervision.onStarted(3, 4))).to.deep.equal(['started 3']);
    expect(supervision.serving).to.deep.equal([3]);
  });

  it('a restart also replaces a worker that was starting when it was requested', () => {
    const supervision = started(2);
    supervision.onEnded(1, killed, 0); // 3 starts
    supervision.restart(1); // 4 replaces 2
    supervision.onStarted(4, 2);
    expect(texts(supervision.onEnded(2, endedWell, 3))).to.deep.equal([]);
    expect(texts(supervision.onStarted(3, 4))).to.deep.equal(['started 3', 'fork 5']);
    expect(texts(supervision.onStarted(5, 5))).to.deep.equal(['started 5', 'hand_over 3']);
    expect(texts(supervision.onEnded(3, endedWell, 6))).to.deep.equal(['restarted']);
    expect(supervision.serving).to.deep.equal([4, 5]);
  });

  it('a worker that does not end in time is killed', () => {
    const supervision = started(1);
    supervision.restart(0);
    supervision.onStarted(2, 10);
    expect(supervision.nextAt).to.equal(10 + maxEndMs);
    expect(texts(supervision.tick(10 + maxEndMs))).to.deep.equal(['killed 1', 'kill 1']);
    expect(texts(supervision.onEnded(1, killed, 10 + maxEndMs))).to.deep.equal([
      'ended_badly 1',
      'restarted',
    ]);
  });

  it('a stop ends all workers and forks no other one, with exit code 0 if all of them ended well', () => {
    const supervision = started(2);
    supervision.onEnded(1, killed, 0); // 3 starts
    supervision.onEnded(3, killed, 0); // waits for its replacement
    expect(texts(supervision.stop(1))).to.deep.equal(['stop 2']);
    expect(supervision.tick(10_000)).to.deep.equal([]);
    expect(texts(supervision.restart(2))).to.deep.equal(['restart_ignored']);
    expect(texts(supervision.onEnded(2, endedWell, 3))).to.deep.equal(['ended 0']);
  });

  it('the exit code is 1 when a worker had to cut requests off, or was killed, or the primary process has a fault', () => {
    for (const [end, exitCode] of [
      [{ code: 1, signal: null }, 0],
      [killed, 0],
      [endedWell, 1],
    ] as const) {
      const supervision = started(1);
      supervision.stop(0, exitCode);
      expect(texts(supervision.onEnded(1, end, 1))).to.deep.equal(['ended 1']);
    }
  });

  it('a stop during a restart ends the new worker too', () => {
    const supervision = started(1);
    supervision.restart(0);
    expect(texts(supervision.stop(1))).to.deep.equal(['stop 1', 'stop 2']);
    expect(supervision.onStarted(2, 2)).to.deep.equal([]);
    supervision.onEnded(2, endedWell, 3);
    expect(texts(supervision.onEnded(1, endedWell, 4))).to.deep.equal(['ended 0']);
  });

  it('whatever happens in any order, as many workers start, serve or wait as there must be, until the stop', () => {
    for (let seed = 1; seed <= 300; seed++) runAtRandom(seed);
  });
});

/** Lets a supervision meet random events, and checks its invariants after each of them. */
function runAtRandom(seed: number): void {
  const random = new Random(seed);
  const processes = 1 + Math.floor(random.next() * 4);
  const supervision = new Supervision(processes);
  const alive = new Map<number, 'starting' | 'serving' | 'ending'>();
  let [now, restarting, handedOver] = [0, 0, 0];

  const perform = (actions: WorkerAction[]): void => {
    for (const action of actions) {
      if (action.kind === 'fork') alive.set(action.worker, 'starting');
      if (action.kind === 'hand_over') {
        handedOver++;
        alive.set(action.worker, 'ending');
        const others = [...alive].filter(([, state]) => state === 'serving');
        expect(others.length, `seed ${seed}: a worker hands over to nobody`).to.be.greaterThan(0);
      }

      if (action.kind === 'report' && action.report.what === 'restarting') restarting++;
      if (action.kind === 'report' && /^restart(ed|_failed)$/.test(action.report.what)) {
        restarting--;
      }
    }
  };

  perform(supervision.start(now));
  for (const worker of [...alive.keys()]) {
    alive.set(worker, 'serving');
    perform(supervision.onStarted(worker, now));
  }

  for (let step = 0; step < 60; step++) {
    now += Math.floor(random.next() * 2_000);
    const workers = [...alive.keys()];
    const worker = workers[Math.floor(random.next() * workers.length)] ?? 0;
    const dice = random.next();

    if (dice < 0.35 && alive.get(worker) === 'starting') {
      alive.set(worker, 'serving');
      perform(supervision.onStarted(worker, now));
    } else if (dice < 0.6 && alive.has(worker)) {
      const wasEnding = alive.get(worker) === 'ending';
      alive.delete(worker);
      perform(supervision.onEnded(worker, wasEnding ? endedWell : killed, now));
    } else if (dice < 0.7 && alive.get(worker) === 'serving') {
      alive.set(worker, 'ending');
      perform(supervision.onLeaving(worker, now));
    } else if (dice < 0.8) {
      perform(supervision.restart(now));
    } else {
      perform(supervision.tick(now));
    }

    expect(restarting, `seed ${seed}: two restarts at once`).to.be.within(0, 1);
  }

  // Without further faults, everything comes to rest with all workers in service.
  for (let round = 0; round < 100; round++) {
    now += 40_000;
    perform(supervision.tick(now));
    for (const [worker, state] of [...alive]) {
      if (state === 'ending') {
        alive.delete(worker);
        perform(supervision.onEnded(worker, endedWell, now));
      } else if (state === 'starting') {
        alive.set(worker, 'serving');
        perform(supervision.onStarted(worker, now));
      }
    }
  }

  expect(supervision.serving.length, `seed ${seed}`).to.equal(processes);
  expect(alive.size, `seed ${seed}`).to.equal(processes);
  expect(restarting, `seed ${seed}`).to.equal(0);
  expect(handedOver).to.be.at.least(0);
}
