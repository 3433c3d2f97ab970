import { type Parser, parse } from 'csv-parse';

/** A record of a CSV file. */
export interface CsvRecord {
  /** The line on which the record begins, from 1. */
  readonly line: number;
  readonly cells: readonly string[];
}

/** The file is not CSV. */
export class CsvError extends Error {
  override name = 'CsvError';
  readonly line: number;

  constructor(line: number, message: string) {
    super(message);
    this.line = line;
  }
}

/**
 * More than the fields of any resource together. The parser has limits of its own only for characters, not for
 * separators, so the bytes of a record that has not ended are counted: they also bound its cells.
 */
const maxRecordBytes = 64 * 1024;

/**
 * Bytes that are parsed at a time. Their records stay in memory until the last one is applied. With 256 KiB, records
 * outlive minor garbage collections, and V8 then enlarges its young generation by up to 64 MB.
 */
const parsedBytes = 8 * 1024;

interface ParsedRecord {
  record: string[];
  info: { lines: number; empty_lines: number };
}

/**
 * Reads CSV (RFC 4180) in UTF-8 with or without a byte order mark, separated by commas or semicolons, whichever the
 * first line has more of. Empty lines are skipped. It holds the records of 8 KiB in memory, or one of 72 KiB.
 * @throws {CsvError} when a quoted cell does not end, or a record has more than 64 KiB, give or take 8 KiB
 */
export async function* readCsv(pieces: Iterable<Buffer>): AsyncGenerator<CsvRecord> {
  let parser: Parser | undefined;
  let failure: Error | undefined;
  let lines = 0;
  let emptyLines = 0;
  /**
   * Bytes since the last parse before the current record began: those of the record, and at most one piece before it.
   */
  let recordBytes = 0;
  const toRecord = ({ record, info }: ParsedRecord): CsvRecord => {
    const line = lines + (info.empty_lines - emptyLines) + 1;
    ({ lines, empty_lines: emptyLines } = info);
    return { line, cells: record };
  };
  const check = (): void => {
    if (failure) throw new CsvError(lines + 1, describe(failure));
  };
  for (const piece of pieces) {
    parser ??= createParser(piece).on('error', error => (failure = error));
    for (let start = 0; start < piece.length; start += parsedBytes) {
      // The parser reads these bytes at once, so that its records can be taken without waiting for events.
      const bytes = piece.subarray(start, start + parsedBytes);
      const ended = countEnded(parser);
      parser.write(bytes);
      recordBytes = (countEnded(parser) === ended ? recordBytes : 0) + bytes.length;
      for (let parsed = parser.read(); parsed !== null; parsed = parser.read()) yield toRecord(parsed);
      await new Promise(setImmediate);
      check();
      if (recordBytes > maxRecordBytes) throw new CsvError(lines + 1, 'the row is too long');
    }
  }
  if (!parser) return;
  parser.end();
  try {
    for await (const parsed of parser) yield toRecord(parsed);
  } catch (error) {
    failure ??= error as Error;
  }
  check();
}

function createParser(first: Buffer) {
  return parse({
    bom: true,
    delimiter: delimiterOf(first),
    info: true,
    relax_column_count: true,
    skip_empty_lines: true,
  });
}

/** The records and empty lines that the parser has read to their end. */
function countEnded({ info }: Parser): number {
  return info.records + info.empty_lines;
}

function delimiterOf(first: Buffer): ',' | ';' {
  const header = first.toString('utf8', 0, parsedBytes).split(/[\r\n]/, 1)[0] ?? '';
  const count = (character: string): number => header.split(character).length;
  return count(';') > count(',') ? ';' : ',';
}

const messages: Record<string, string> = {
  CSV_QUOTE_NOT_CLOSED: 'a quoted cell does not end',
  CSV_INVALID_CLOSING_QUOTE: 'a quoted cell has text after its closing quote',
  INVALID_OPENING_QUOTE: 'a quote must be at the beginning of a cell',
};

function describe(error: Error): string {
  const { code = '' } = error as { code?: string };
  return messages[code] ?? 'the file is not CSV';
}
