import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect } from 'chai';
import { Read, ReadMemory } from '../../src/connections/read-memory.ts';

const kibibyte = 1024;
const mebibyte = 1024 * kibibyte;

describe('memory of large reads', () => {
  /** Starts a read on a connection that records whether it is paused. */
  function start(memory: ReadMemory, tenant: object, work: object = {}) {
    const connection = {
      paused: false,
      pause: () => (connection.paused = true),
      resume: () => (connection.paused = false),
    };
    const read = new Read(memory, tenant, work);
    read.source = connection;
    return { read, work, connection };
  }

  it('a read that has received more than 512 KiB waits until earlier large work of its tenant has ended', async () => {
    const memory = new ReadMemory(100 * mebibyte);
    const tenant = {};
    const reads = Array.from({ length: 3 }, () => start(memory, tenant));
    for (const { read } of reads) read.receive(512 * kibibyte);
    await nextTurn();
    expect(reads.map(({ connection }) => connection.paused)).to.deep.equal([false, false, false]);
    expect(memory.bytes).to.equal(0);
    for (const { read } of reads) read.receive(1);
    await nextTurn();
    expect(reads.map(({ connection }) => connection.paused)).to.deep.equal([false, true, true]);
    memory.end(reads[0]?.work ?? {});
    await nextTurn();
    expect(reads.map(({ connection }) => connection.paused)).to.deep.equal([false, false, true]);
    expect(memory.bytes).to.equal(2 * (512 * kibibyte + 1));
  });

  it('large reads of many tenants wait while they have received the maximum together, except the first', async () => {
    const memory = new ReadMemory(4 * mebibyte);
    const reads = Array.from({ length: 4 }, () => start(memory, {}));
    for (const { read } of reads) read.receive(mebibyte);
    for (const { read } of reads) read.receive(mebibyte);
    await nextTurn();
    expect(reads.map(({ connection }) => connection.paused)).to.deep.equal([false, true, true, true]);
    reads[0]?.read.receive(8 * mebibyte);
    await nextTurn();
    expect(reads[0]?.connection.paused).to.equal(false);
    memory.end(reads[0]?.work ?? {});
    expect(memory.bytes).to.equal(6 * mebibyte);
    await nextTurn();
    expect(reads.map(({ connection }) => connection.paused)).to.deep.equal([false, false, true, true]);
    for (const { work } of reads) memory.end(work);
    expect(memory.bytes).to.equal(0);
  });

  it('large reads of the same work do not wait for each other', async () => {
    const memory = new ReadMemory(mebibyte);
    const [tenant, work] = [{}, {}];
    const first = start(memory, tenant, work);
    first.read.receive(2 * mebibyte);
    const other = start(memory, tenant);
    other.read.receive(2 * mebibyte);
    const second = start(memory, tenant, work);
    second.read.receive(2 * mebibyte);
    await nextTurn();
    expect([first, second, other].map(({ connection }) => connection.paused)).to.deep.equal([false, false, true]);
  });

  it('a read lets the event loop run after each chunk beyond the first 64 KiB', async () => {
    const { read, connection } = start(new ReadMemory(mebibyte), {});
    read.receive(64 * kibibyte);
    expect(connection.paused).to.equal(false);
    for (let chunk = 0; chunk < 3; chunk++) {
      read.receive(64 * kibibyte);
      expect(connection.paused).to.equal(true);
      await nextTurn();
      expect(connection.paused).to.equal(false);
    }
  });
});
