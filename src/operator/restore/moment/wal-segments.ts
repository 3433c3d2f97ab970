import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';

/** The name of a segment: timeline, log and number in it, each with 8 hexadecimal digits. */
const segmentName = /^[0-9A-F]{24}$/;
/** All segments of one log. */
const logBytes = 2 ** 32;

/** Compares segments by their position in the log. The first 8 digits are the timeline, which a failover changes. */
export function byPosition(one: string, other: string): number {
  return one.slice(8, 24) < other.slice(8, 24) ? -1 : Number(one.slice(8, 24) > other.slice(8, 24));
}

/**
 * Reads which segments an archive has.
 * @returns whether it has all of them from one to another, the first included; never if it cannot be read
 */
export async function readSegments(archive: string): Promise<(from: string, to: string) => boolean> {
  const names = (await readdir(archive).catch(() => [])).filter(name => segmentName.test(name));
  const positions = new Set(names.map(name => name.slice(8)));
  const bytes = names[0] === undefined ? 0 : (await stat(join(archive, names[0]))).size;
  const perLog = BigInt(bytes > 0 ? Math.max(1, Math.floor(logBytes / bytes)) : 1);
  const numberOf = (segment: string): bigint =>
    BigInt(`0x${segment.slice(8, 16)}`) * perLog + BigInt(`0x${segment.slice(16)}`);
  return (from, to) => {
    if (names.length === 0) return false;
    for (let number = numberOf(from); number < numberOf(to); number++) {
      const [log, rest] = [number / perLog, number % perLog];
      if (!positions.has([log, rest].map(part => part.toString(16).toUpperCase().padStart(8, '0')).join('')))
        return false;
    }
    return true;
  };
}
