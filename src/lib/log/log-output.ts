import { writeSync } from 'node:fs';
import { codeOf } from '../narrow.ts';

const flushBytes = 4_096;
/**
 * `PIPE_BUF` of Linux: a write of so many bytes into a pipe is not mixed with those of other
 * processes (pipe(7)). Worker processes share the output.
 */
const maxAtomicBytes = 4_096;
const flushMs = 100;
const maxBufferedBytes = 1024 * 1024;
/**
 * The wait before a retry after a pipe accepted a part: its reader works, and empties 64 KiB
 * within this time.
 */
const partRetryMs = 10;
const maxFinalMs = 1_000;
const finalRetryMs = 5;

/** The standard output of the process, as the destination of its log. */
export type LogOutput = ReturnType<typeof createLogOutput>;

/**
 * Writes to standard output without ever waiting for it: a pipe without a reader, or a full
 * disk, neither stops nor ends the service. Text that the output does not accept is buffered,
 * up to 1 MiB. When the buffer is full, lines are dropped and counted until half of it is free.
 * (Only a terminal that is paused with Ctrl-S makes the process wait.)
 * @param reportDropped called after lines were dropped, as soon as there is room; its argument
 *   is their number
 */
export function createLogOutput(reportDropped: (lines: number) => void) {
  // Reading process.stdout makes a pipe or socket non-blocking. An error of either stream must
  // not end the process.
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {});
  let text = '';
  let textBytes = 0;
  /**
   * Bytes that the output did not accept, or not completely. They are written first, so that no
   * line is cut.
   */
  let rest = Buffer.alloc(0);
  let timer: NodeJS.Timeout | undefined;
  let droppedLines = 0;
  let unreportedLines = 0;

  const schedule = (ms: number): void => {
    timer ??= setTimeout(flush, ms).unref();
  };
  /**
   * @returns the code of the error that left bytes in the buffer; undefined when the buffer is
   *   empty
   */
  const writeBuffer = (): string | undefined => {
    rest = textBytes === 0 ? rest : Buffer.concat([rest, Buffer.from(text)]);
    text = '';
    textBytes = 0;
    try {
      while (rest.length > 0) rest = rest.subarray(writeSync(1, rest, 0, atomicLength(rest)));
      return undefined;
    } catch (error) {
      return codeOf(error) ?? 'unknown'; // EAGAIN, ENOSPC, EPIPE …
    }
  };
  const flush = (): void => {
    clearTimeout(timer);
    timer = undefined;
    const before = rest.length + textBytes;
    if (writeBuffer() !== undefined) schedule(rest.length < before ? partRetryMs : flushMs);
    if (unreportedLines === 0 || rest.length > maxBufferedBytes / 2) return;
    const lines = unreportedLines;
    unreportedLines = 0;
    reportDropped(lines);
  };
  return {
    /**
     * Adds text to the buffer, which is written within 100 ms. Never throws and never waits for
     * the reader.
     */
    write(line: string): void {
      const bytes = Buffer.byteLength(line);
      if (unreportedLines > 0 || rest.length + textBytes + bytes > maxBufferedBytes) {
        droppedLines++;
        unreportedLines++;
        return;
      }
      text += line;
      textBytes += bytes;
      if (rest.length === 0 && textBytes >= flushBytes) flush();
      else schedule(flushMs);
    },
    /** Writes the buffer, as far as the output accepts it now. Never throws. */
    flush(): void {
      // Otherwise the output has just refused bytes, and the timer tries again.
      if (rest.length === 0) flush();
    },
    /**
     * Writes the buffer at the end of the process. Waits up to 1 s for a full pipe. Never
     * throws.
     */
    flushFinally(): void {
      const endsAt = performance.now() + maxFinalMs;
      while (writeBuffer() === 'EAGAIN' && performance.now() < endsAt) {
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, finalRetryMs);
      }
    },
    /** Lines dropped since the start. */
    get droppedLines(): number {
      return droppedLines;
    },
  };
}

/**
 * Returns the length of the whole lines at the start of the text that one atomic write can
 * take; at least one line.
 */
function atomicLength(text: Buffer): number {
  if (text.length <= maxAtomicBytes) return text.length;
  const lastEnd = text.lastIndexOf('\n', maxAtomicBytes - 1);
  const end = lastEnd >= 0 ? lastEnd : text.indexOf('\n');
  return end >= 0 ? end + 1 : text.length;
}
