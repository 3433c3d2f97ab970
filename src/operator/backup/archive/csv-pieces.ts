const quote = 0x22;
const lineFeed = 0x0a;

/** Returns the header row of a table, as `copy` writes it. */
export function csvHeader(columns: readonly string[]): Buffer {
  const values = columns.map(name =>
    /[",\r\n]/.test(name) ? `"${name.replaceAll('"', '""')}"` : name,
  );

  return Buffer.from(`${values.join()}\n`);
}

/** A part of a table as CSV: its header row, and whole rows. */
export interface CsvPiece {
  readonly bytes: Buffer;
  readonly rows: number;
}

/**
 * Cuts CSV with a header row, as `copy` writes it, into pieces that each begin with that header
 * row. A table without a row has one piece. Holds two pieces in memory.
 * @param maxBytes of a piece; a single row that is larger makes a piece of its own
 */
export async function* csvPieces(
  csv: AsyncIterable<Buffer>,
  maxBytes: number,
): AsyncGenerator<CsvPiece> {
  const cutter = new CsvCutter(maxBytes);

  for await (const chunk of csv) {
    yield* cutter.add(chunk);
  }

  yield cutter.end();
}

/**
 * Finds the ends of rows. A line feed ends a row unless it is in a quoted value. An escaped
 * quote is two quotes, so the number of quotes before a line feed is odd exactly in a quoted
 * value.
 */
class CsvCutter {
  readonly #maxBytes: number;
  #header: Buffer | undefined;
  #chunks: Buffer[] = [];
  #bytes = 0;
  /** The place in `#chunks` where the last complete row ends. */
  #rowEnd = 0;
  #rows = 0;
  #isQuoted = false;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Adds bytes, and returns the pieces that are complete. */
  *add(chunk: Buffer): Generator<CsvPiece> {
    let base = this.#bytes;
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;

    for (const after of this.#findRowEnds(chunk)) {
      const end = base + after;
      if (this.#header === undefined) {
        this.#header = this.#take(end);
        base -= end;
        continue;
      }

      const isFull = this.#header.length + end > this.#maxBytes && this.#rows > 0;
      if (isFull) {
        base -= this.#rowEnd;
        yield this.#cut();
      }
      this.#rowEnd = base + after;
      this.#rows++;
    }
  }

  /** Returns the places after the ends of rows. Its own variables make the loop faster. */
  #findRowEnds(chunk: Buffer): number[] {
    const ends: number[] = [];
    const { length } = chunk;
    let isQuoted = this.#isQuoted;

    for (let at = 0; at < length; at++) {
      const byte = chunk[at];
      if (byte === quote) isQuoted = !isQuoted;
      else if (byte === lineFeed && !isQuoted) ends.push(at + 1);
    }

    this.#isQuoted = isQuoted;
    return ends;
  }

  /**
   * Returns the last piece.
   * @throws when the rows do not end with a line feed
   */
  end(): CsvPiece {
    if (this.#header === undefined || this.#rowEnd !== this.#bytes) {
      throw new Error('the rows of a table end too early');
    }

    return this.#cut();
  }

  #cut(): CsvPiece {
    const rows = this.#rows;
    const bytes = this.#take(this.#rowEnd, this.#header);
    this.#rowEnd = 0;
    this.#rows = 0;

    return { bytes, rows };
  }

  /** Removes the first bytes, and returns them after `before`. Each byte is copied once. */
  #take(length: number, before: Buffer = Buffer.alloc(0)): Buffer {
    const all = Buffer.concat([before, ...this.#chunks]);
    const end = before.length + length;
    const rest = all.subarray(end);
    this.#chunks = rest.length > 0 ? [rest] : [];
    this.#bytes = rest.length;

    return all.subarray(0, end);
  }
}
