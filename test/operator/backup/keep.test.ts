import { expect } from 'chai';
import fc from 'fast-check';
import { readConfig } from '../../../src/lib/config/config.ts';
import { archivesToKeep } from '../../../src/operator/backup/keep.ts';

const minuteMs = 60_000;
const hourMs = 60 * minuteMs;
const dayMs = 24 * hourMs;

interface Archive {
  readonly time: Date;
  readonly isProved: boolean;
}

const keepOf = (text: string) => readConfig({ BACKUP_KEEP: text }).backup.keep;
const defaultKeep = readConfig({}).backup.keep;
const timesOf = (archives: Iterable<Archive>): string[] =>
  [...archives].map(({ time }) => time.toISOString()).sort();

describe('which archives BACKUP_KEEP keeps', () => {
  it('six hours of runs every five minutes with changes stay whole, and then the newest of each hour', () => {
    const begin = Date.parse('2026-03-01T00:00:00Z');
    let archives: Archive[] = [];

    // Each run adds an archive, and removes what is not kept.
    for (let now = begin; now <= begin + 30 * hourMs; now += 5 * minuteMs) {
      archives.push({ time: new Date(now), isProved: false });
      archives = [...archivesToKeep(archives, defaultKeep, new Date(now))];

      const young = archives.filter(({ time }) => time.getTime() > now - 6 * hourMs);
      const expected = Math.min(72, (now - begin) / (5 * minuteMs) + 1);
      expect(young.length, new Date(now).toISOString()).to.equal(expected);
    }

    const now = begin + 30 * hourMs;
    const old = archives.filter(({ time }) => time.getTime() <= now - 6 * hourMs);
    expect(timesOf(old)).to.deep.equal(
      Array.from({ length: 24 }, (_, hour) =>
        new Date(begin + hour * hourMs + 55 * minuteMs).toISOString(),
      ),
    );
  });

  it('a year of runs every hour keeps what the default says of hours, days, weeks and months', () => {
    const begin = Date.parse('2025-01-01T00:00:00Z');
    const end = begin + 400 * dayMs;
    let archives: Archive[] = [];

    for (let now = begin; now <= end; now += hourMs) {
      archives.push({ time: new Date(now), isProved: false });
      archives = [...archivesToKeep(archives, defaultKeep, new Date(now))];
    }

    const ages = archives
      .map(({ time }) => (end - time.getTime()) / dayMs)
      .sort((one, other) => one - other);
    expect(ages.filter(age => age < 2)).to.have.length(48);
    expect(Math.max(...ages)).to.be.within(300, 345);
    expect(archives.length).to.be.within(70, 48 + 14 + 8 + 12);
  });

  it('the newest archive and the newest proved one are kept whatever else is, and nothing is kept without a reason', () => {
    const archive = fc.record({
      time: fc.date({
        min: new Date('2025-01-01'),
        max: new Date('2026-01-01'),
        noInvalidDate: true,
      }),
      isProved: fc.boolean(),
    });
    const keep = fc.record({
      allMs: fc.nat(48 * hourMs),
      hours: fc.nat(30),
      days: fc.nat(10),
      weeks: fc.nat(6),
      months: fc.nat(13),
    });

    fc.assert(
      fc.property(fc.array(archive, { minLength: 1 }), keep, (archives, { allMs, ...periods }) => {
        const now = new Date('2026-01-02');
        const kept = archivesToKeep(archives, { allMs, ...periods }, now);
        const newest = archives.reduce((one, other) => (other.time > one.time ? other : one));
        const proved = archives.filter(({ isProved }) => isProved);

        expect([...kept].some(({ time }) => time.getTime() === newest.time.getTime())).to.equal(
          true,
        );
        if (proved.length > 0) {
          const newestProved = Math.max(...proved.map(({ time }) => time.getTime()));
          expect(
            [...kept].some(({ time, isProved }) => isProved && time.getTime() === newestProved),
          ).to.equal(true);
        }
        for (const each of archives) {
          if (each.time.getTime() > now.getTime() - allMs) expect(kept.has(each)).to.equal(true);
        }
        const young = archives.filter(({ time }) => time.getTime() > now.getTime() - allMs).length;
        const { hours, days, weeks, months } = periods;
        expect(kept.size).to.be.at.most(young + 2 + hours + days + weeks + months);

        const again = archivesToKeep([...kept], { allMs, ...periods }, now);
        expect(again.size, 'keeping once more removes nothing').to.equal(kept.size);
      }),
    );
  });

  it('a mistake that is noticed after six minutes is undone by an archive from before it', () => {
    const now = Date.parse('2026-03-01T12:06:00Z');
    const archives = [0, 5, 10, 15].map(minutes => ({
      time: new Date(now - minutes * minuteMs),
      isProved: false,
    }));

    const kept = archivesToKeep(archives, defaultKeep, new Date(now));

    expect(timesOf(kept)).to.include('2026-03-01T11:56:00.000Z');
  });

  it('all keeps every archive, and an empty or unknown setting is refused with an example', () => {
    const archives = [1, 2, 3].map(days => ({
      time: new Date(Date.now() - days * 1_000 * dayMs),
      isProved: false,
    }));

    expect(archivesToKeep(archives, keepOf('all'), new Date()).size).to.equal(3);
    expect(keepOf('all:90d,3m')).to.deep.equal({
      allMs: 90 * dayMs,
      hours: 0,
      days: 0,
      weeks: 0,
      months: 3,
    });
    expect(keepOf('24h, 7d')).to.deep.equal({ allMs: 0, hours: 24, days: 7, weeks: 0, months: 0 });
    for (const wrong of ['all:6m', 'all:', '0h', 'everything', '6', 'all:6h:2d']) {
      expect(() => keepOf(wrong), wrong).to.throw(
        /BACKUP_KEEP must be a time .* such as all:6h,48h,14d,8w,12m; or all/,
      );
    }
  });
});
