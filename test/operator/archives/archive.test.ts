import { randomBytes, randomUUID } from 'node:crypto';
import { buffer } from 'node:stream/consumers';
import { expect } from 'chai';
import fc from 'fast-check';
import { ArchiveFault } from '../../../src/operator/archives/format/archive-fault.ts';
import {
  type ArchiveReader,
  checkRows,
  readArchive,
  writeArchive,
} from '../../../src/operator/archives/format/archive-file.ts';
import type { ArchiveManifest } from '../../../src/operator/archives/format/archive-manifest.ts';
import { frameBytes, tagBytes } from '../../../src/operator/archives/format/frames.ts';
import { archivesToKeep } from '../../../src/operator/archives/prune.ts';

const tenant = randomUUID();
const dataKey = randomBytes(32);

function manifestOf(tables: Record<string, string[]>): ArchiveManifest {
  return {
    kind: 'tenant',
    tenant: { guid: tenant, slug: 'acme', name: 'Acme' },
    schemaVersion: '0001-first',
    schemaFingerprint: null,
    snapshotAt: '2026-01-01T00:00:00.000000Z',
    source: { server: 'default', database: 'acme_1', postgres: '18.0' },
    tables: Object.entries(tables).map(([name, rows]) => ({
      name,
      columns: ['id'],
      types: ['bigint'],
      rows: rows.length,
      checksum: '0',
      sequences: [],
    })),
  };
}

async function write(id: string, tables: Record<string, string[]>): Promise<Buffer> {
  const header = { format: 1 as const, id, tenant, key: 'fingerprint' };
  const rowsOf = async function* (table: { name: string }): AsyncGenerator<Buffer> {
    for (const row of tables[table.name] ?? []) yield Buffer.from(`${row}\n`);
  };
  return buffer(writeArchive(header, dataKey, manifestOf(tables), rowsOf));
}

/** Gives a file in chunks that do not end where its parts do. */
async function* inChunks(bytes: Buffer, size = 1_000): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

function read<T>(bytes: Buffer, id: string, work: (archive: ArchiveReader) => Promise<T>, key = dataKey): Promise<T> {
  return readArchive(inChunks(bytes), { id, tenant }, () => key, work);
}

/** Returns the kind of fault that a full check finds; undefined when it finds none. */
async function faultOf(bytes: Buffer, id: string, key = dataKey): Promise<string | undefined> {
  try {
    await read(bytes, id, checkRows, key);
    return undefined;
  } catch (error) {
    if (error instanceof ArchiveFault) return error.kind;
    throw error;
  }
}

describe('archives', () => {
  it('a reader gets the rows of every table as they were written, whatever their number and size', async () => {
    const row = fc
      .oneof(
        fc.string(),
        fc.nat(200_000).map(length => 'x'.repeat(length)),
      )
      .map(text => text.replaceAll('\n', ''));
    const tables = fc.dictionary(fc.stringMatching(/^[a-z]{1,5}$/), fc.array(row, { maxLength: 20 }), { maxKeys: 4 });
    await fc.assert(
      fc.asyncProperty(tables, async rows => {
        const id = randomUUID();
        const found: Record<string, string[]> = {};
        await read(await write(id, rows), id, async archive => {
          for await (const { table, rows: chunks } of archive.tables()) {
            const text = (await buffer(chunks)).toString();
            found[table.name] = text.split('\n').slice(0, -1);
          }
        });
        expect(found).to.deep.equal({ ...rows });
      }),
      { numRuns: 30 },
    );
  });

  it('every flipped byte and every cut of an archive is found, before a row of it counts as read', async () => {
    const id = randomUUID();
    const bytes = await write(id, { statuses: ['1\tLead', '2\tProspect'], empty: [] });
    expect(await faultOf(bytes, id)).to.equal(undefined);
    for (let at = 0; at < bytes.length; at++) {
      const changed = Buffer.from(bytes);
      changed.writeUInt8(bytes.readUInt8(at) ^ (1 << (at % 8)), at);
      expect(await faultOf(changed, id), `byte ${at}`).to.be.oneOf(['damaged', 'truncated', 'foreign']);
      expect(await faultOf(bytes.subarray(0, at), id), `cut at ${at}`).to.be.oneOf(['damaged', 'truncated']);
    }
    expect(await faultOf(Buffer.concat([bytes, Buffer.alloc(1)]), id)).to.equal('damaged');
  });

  it('frames that are missing, doubled, moved or of another archive are found', async () => {
    const noise = Array.from({ length: 400 }, () => randomBytes(500).toString('hex'));
    const [id, otherId] = [randomUUID(), randomUUID()];
    const [bytes, other] = [await write(id, { noise }), await write(otherId, { noise })];
    const size = frameBytes + tagBytes;
    const header = bytes.subarray(0, bytes.indexOf('}') + 1);
    const framesOf = (file: Buffer): Buffer[] => {
      const body = file.subarray(header.length);
      return Array.from({ length: Math.ceil(body.length / size) }, (_, at) =>
        body.subarray(at * size, (at + 1) * size),
      );
    };
    const frames = framesOf(bytes);
    expect(frames.length).to.be.greaterThan(2);
    const [first, second, ...rest] = frames as [Buffer, Buffer, ...Buffer[]];
    const variants: Record<string, Buffer[]> = {
      missing: [first, ...rest],
      doubled: [first, first, second, ...rest],
      moved: [second, first, ...rest],
      foreign: [framesOf(other)[0] as Buffer, second, ...rest],
      cut: frames.slice(0, -1),
    };
    for (const [name, changed] of Object.entries(variants))
      expect(await faultOf(Buffer.concat([header, ...changed]), id), name).to.be.oneOf(['damaged', 'truncated']);
    expect(await faultOf(bytes, id)).to.equal(undefined);
    expect(await faultOf(bytes, otherId)).to.equal('foreign');
    expect(await faultOf(bytes, id, randomBytes(32))).to.equal('damaged');
  });

  it('the retention always keeps the newest archive and the newest proved one, and one of each period', () => {
    const hourMs = 3_600_000;
    const now = Date.UTC(2026, 5, 15, 12);
    const archive = fc.record({
      snapshotAt: fc.nat(2_000 * 24).map(hours => new Date(now - hours * hourMs)),
      provedAt: fc.option(fc.constant(new Date(now))),
    });
    const keep = fc.record({
      allMs: fc.constant(0),
      hours: fc.nat(30),
      days: fc.nat(10),
      weeks: fc.nat(6),
      months: fc.nat(13),
    });
    fc.assert(
      fc.property(fc.array(archive, { minLength: 1, maxLength: 60 }), keep, (archives, counts) => {
        const kept = archivesToKeep(archives, counts);
        const newestFirst = archives.toSorted((a, b) => b.snapshotAt.getTime() - a.snapshotAt.getTime());
        expect(kept.has(newestFirst[0] as (typeof archives)[number])).to.equal(true);
        const proved = newestFirst.find(({ provedAt }) => provedAt !== null);
        if (proved) expect(kept.has(proved)).to.equal(true);
        const months = new Set(newestFirst.map(({ snapshotAt }) => snapshotAt.toISOString().slice(0, 7)));
        const keptMonths = new Set([...kept].map(({ snapshotAt }) => snapshotAt.toISOString().slice(0, 7)));
        for (const month of [...months].slice(0, counts.months)) expect(keptMonths.has(month)).to.equal(true);
        expect(kept.size).to.be.at.most(counts.hours + counts.days + counts.weeks + counts.months + 2);
      }),
    );
  });
});
