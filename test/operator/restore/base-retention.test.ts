import { mkdir, mkdtemp, readdir, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import fc from 'fast-check';
import { type BaseBackup, baseFolder, listBaseBackups } from '../../../src/operator/restore/moment/base-folder.ts';
import { withBaseLease, withRemovalLease } from '../../../src/operator/restore/moment/base-leases.ts';
import { basesToKeep } from '../../../src/operator/restore/moment/base-retention.ts';
import { pruneBaseBackups } from '../../../src/operator/restore/moment/prune-base-backups.ts';

const hourMs = 3_600_000;
const segmentBytes = 16 * 1024 * 1024;
const beginning = Date.UTC(2026, 0, 1);

/** Base backup number `at`, which ends at an hour and needs the write-ahead log from a segment on. */
function baseOf(at: number, hour: number, segment: number, walArchive: string): BaseBackup {
  const time = new Date(beginning + hour * hourMs).toISOString();
  return {
    format: 1,
    id: `2026010${at}T000000Z`,
    systemIdentifier: '1',
    version: 180_000,
    program: null,
    superuser: 'postgres',
    maxPreparedTransactions: 0,
    dataDirectory: '/nowhere',
    walArchive,
    firstSegment: segmentOf(segment),
    startedAt: time,
    finishedAt: time,
    bytes: 0,
    databases: [],
  };
}

/** With segments of 16 MB, a log has 256. */
function segmentOf(number: number): string {
  const hex = (value: number): string => value.toString(16).toUpperCase().padStart(8, '0');
  return `00000001${hex(Math.floor(number / 256))}${hex(number % 256)}`;
}

describe('retention of base backups', () => {
  let root: string;

  before(async () => {
    root = await mkdtemp(join(tmpdir(), 'bases-'));
  });
  after(() => rm(root, { recursive: true, force: true }));

  async function makeFolder(name: string, bases: [hour: number, segment: number][], segments: Iterable<number>) {
    const folder = baseFolder(root, name);
    await mkdir(folder.wal, { recursive: true });
    for (const number of segments) {
      await writeFile(join(folder.wal, segmentOf(number)), '');
      await truncate(join(folder.wal, segmentOf(number)), segmentBytes); // takes no space on the disk
    }
    for (const [at, [hour, segment]] of bases.entries()) {
      const base = baseOf(at + 1, hour, segment, folder.wal);
      await mkdir(join(folder.base(base.id), 'files'), { recursive: true });
      await writeFile(join(folder.base(base.id), 'manifest.json'), JSON.stringify(base));
    }
    return folder;
  }

  it('every moment of the time that is kept stays reachable after any number of removals, by at most three base backups', () => {
    const gaps = fc.array(fc.record({ hours: fc.integer({ min: 1, max: 60 }), broken: fc.boolean() }), {
      minLength: 1,
      maxLength: 60,
    });
    fc.assert(
      fc.property(gaps, fc.integer({ min: 1, max: 400 }), (steps, hours) => {
        interface Made {
          finishedAt: string;
          /** The number of gaps in the log before it: a recovery from one base backup passes none. */
          part: number;
        }
        let [kept, now, part]: [Made[], number, number] = [[], beginning, 0];
        const all: Made[] = [];
        for (const step of steps) {
          now += step.hours * hourMs;
          if (step.broken) part++;
          const made = { finishedAt: new Date(now).toISOString(), part };
          all.push(made);
          const isContinuous = (from: Made, to: Made): boolean => from.part === to.part;
          kept = [...basesToKeep([...kept, made], { hours }, new Date(now), isContinuous)];
          const base = (list: Made[], moment: number): Made | undefined =>
            list.findLast(({ finishedAt }) => Date.parse(finishedAt) <= moment);
          for (let moment = now - hours * hourMs; moment <= now; moment += hourMs)
            expect(base(kept, moment)?.part, `hour ${(moment - beginning) / hourMs}`).to.equal(base(all, moment)?.part);
          const parts = new Set(kept.map(each => each.part)).size;
          expect(kept.length).to.be.at.most(2 + parts);
        }
      }),
    );
  });

  it('removes base backups that are not kept with the write-ahead log before the oldest kept one, and nothing else', async () => {
    const numbers = Array.from({ length: 300 }, (_, number) => number);
    const bases: [number, number][] = [
      [0, 10],
      [24, 100],
      [48, 200],
      [72, 270],
      [96, 290],
    ];
    const folder = await makeFolder('default', bases, numbers);
    const now = new Date(beginning + 100 * hourMs);
    const pruned = await pruneBaseBackups(folder, { hours: 60 }, now);
    // The one of hour 24 is the last before hour 40, the next follows it, and the newest stays.
    expect((await listBaseBackups(folder)).map(({ firstSegment }) => firstSegment)).to.deep.equal(
      [100, 200, 290].map(segmentOf),
    );
    expect(pruned).to.deep.equal({
      baseBackups: 2,
      segments: 100,
      held: [],
      from: new Date(beginning + 24 * hourMs).toISOString(),
    });
    expect((await readdir(folder.wal)).sort()[0]).to.equal(segmentOf(100));
    expect((await readdir(folder.wal)).length).to.equal(200);
    expect(await pruneBaseBackups(folder, { hours: 60 }, now)).to.include({ baseBackups: 0, segments: 0 });
    expect(await pruneBaseBackups(folder, { count: 1 }, now)).to.include({ baseBackups: 2, segments: 190 });
  });

  it('a base backup that a restore reads stays, with the write-ahead log since, until the restore has ended', async () => {
    const numbers = Array.from({ length: 50 }, (_, number) => number);
    const bases: [number, number][] = [
      [0, 10],
      [24, 20],
      [48, 30],
      [72, 40],
    ];
    const folder = await makeFolder('read', bases, numbers);
    const prune = () => pruneBaseBackups(folder, { count: 1 }, new Date(beginning + 100 * hourMs));
    const second = async () =>
      (await listBaseBackups(folder)).find(({ firstSegment }) => firstSegment === segmentOf(20));
    const choose = async () => (await second()) ?? expect.fail('the base backup is gone');
    await withBaseLease(folder, choose, async ({ id }) => {
      expect(await prune()).to.deep.include({ baseBackups: 2, segments: 20, held: [{ id, pid: process.pid }] });
      expect(await second()).to.include({ id });
      expect((await readdir(folder.wal)).sort()[0]).to.equal(segmentOf(20));
    });
    expect(await prune()).to.deep.include({ baseBackups: 1, segments: 20, held: [] });
    expect((await readdir(folder.root)).filter(name => /^(reading|removing)/.test(name))).to.deep.equal([]);
  });

  it('what a process that has ended has announced does not count', async () => {
    const folder = await makeFolder(
      'killed',
      [
        [0, 1],
        [24, 2],
      ],
      [1, 2, 3],
    );
    const [first] = await listBaseBackups(folder);
    // A process with the number of this one, which began at another time, and one that does not exist.
    for (const owner of [`${process.pid}-1`, '4194305-7'])
      for (const kind of [`reading-${first?.id}`, 'removing'])
        await writeFile(join(folder.root, `${kind}-${owner}-a1`), '');
    const choose = async () => (await listBaseBackups(folder))[0] ?? expect.fail('there is no base backup');
    expect((await withBaseLease(folder, choose, async base => base)).id).to.equal(first?.id);
    expect(await pruneBaseBackups(folder, { count: 1 }, new Date())).to.deep.include({ baseBackups: 1, held: [] });
  });

  it('no removal takes a base backup from a restore, in whatever order both begin', async () => {
    const bases = Array.from({ length: 9 }, (_, at): [number, number] => [at * 24, at + 1]);
    const folder = await makeFolder('both', bases, [1, 2, 3]);
    const seed = Number(process.env.LEASE_SEED ?? Date.now() % 1_000_000);
    const random = fc.sample(fc.nat(8), { seed, numRuns: 400 });
    const pause = () => new Promise(resolve => setTimeout(resolve, random.pop() ?? 0));
    let chosen = 0;
    const restore = async (): Promise<void> => {
      await pause();
      const oldest = async () => (await listBaseBackups(folder))[0] ?? expect.fail('there is no base backup');
      await withBaseLease(folder, oldest, async base => {
        chosen++;
        for (let step = 0; step < 3; step++) {
          const ids = (await listBaseBackups(folder)).map(({ id }) => id);
          expect(ids, `seed ${seed}`).to.include(base.id);
          await pause();
        }
      });
    };
    const removal = async (count: number): Promise<void> => {
      await pause();
      await pruneBaseBackups(folder, { count }, new Date(beginning));
    };
    const restores = Array.from({ length: 20 }, restore);
    for (let count = 8; count > 0; count--) await removal(count);
    await Promise.all(restores);
    expect(chosen).to.equal(20);
    await withRemovalLease(folder, async readers => expect([...readers]).to.deep.equal([]));
  });

  it('the base backup after a missing segment stays, because no recovery passes the gap', async () => {
    const numbers = Array.from({ length: 300 }, (_, number) => number).filter(number => number !== 255);
    const bases: [number, number][] = [
      [0, 10],
      [24, 100],
      [48, 200],
      [72, 270],
      [96, 280],
      [120, 290],
    ];
    const folder = await makeFolder('other', bases, numbers);
    await pruneBaseBackups(folder, { hours: 120 }, new Date(beginning + 120 * hourMs));
    expect((await listBaseBackups(folder)).map(({ firstSegment }) => firstSegment)).to.deep.equal(
      [10, 100, 270, 290].map(segmentOf),
    );
  });
});
