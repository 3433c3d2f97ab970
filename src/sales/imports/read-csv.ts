import { type Parser, parse } from 'csv-parse';
import { asError, codeOf } from '../../lib/narrow.ts';

/** The character between two cells of a file. */
type Delimiter = ',' | ';' | '\t';

/** A record of a CSV file. */
export interface CsvRecord {
  /** The line on which the record begins, from 1. */
  readonly line: number;
  /**
   * The row that a spreadsheet shows, from 1: it hides a line `sep=`, and shows a text of
   * several lines in one row.
   */
  readonly row: number;
  readonly cells: readonly string[];
  /** The delimiter of the file of the record. */
  readonly delimiter: Delimiter;
}

/** The file is not CSV. */
export class CsvError extends Error {
  override name = 'CsvError';
  readonly line: number;
  readonly row: number;

  constructor(line: number, row: number, message: string) {
    super(message);
    this.line = line;
    this.row = row;
  }
}

/**
 * The maximum bytes of a record: more than the fields of any resource have together. The parser
 * has limits of its own only for characters, not for separators, so the bytes of a record that
 * has not ended are counted: they also bound its cells.
 */
const maxRecordBytes = 64 * 1024;

/**
 * Bytes that are parsed at a time. Their records stay in memory until the last one is applied.
 * With 256 KiB, records outlive minor garbage collections, and V8 then enlarges its young
 * generation by up to 64 MB.
 */
const parsedBytes = 8 * 1024;

interface ParsedRecord {
  record: string[];
  info: { lines: number; empty_lines: number; records: number };
}

/**
 * Reads CSV (RFC 4180) in UTF-8 with or without a byte order mark, separated by commas,
 * semicolons or tabs: by the one that the line `sep=` of Excel at the beginning names, else by
 * the one that is most frequent in the first line with text. Lines end with CR LF, LF or CR,
 * each with another one than those beside it, too; so do those of a quoted cell, where each is
 * read as LF. Rows without a value are skipped.
 * Holds the records of 8 KiB in memory, or one record of 72 KiB.
 * @throws {CsvError} when a quoted cell does not end, or a record has more than 64 KiB, give or
 *   take 8 KiB
 */
export async function* readCsv(pieces: Iterable<Buffer>): AsyncGenerator<CsvRecord> {
  const blocks = withLineFeeds(pieces);
  const first = firstBytes(blocks);
  const { delimiter, begin } = formatOf(first);
  const parser = createParser(delimiter);
  /** Lines before the first one that is parsed. */
  const linesBefore = begin > 0 ? 1 : 0;
  let failure: Error | undefined;
  let lines = 0;
  let emptyLines = 0;
  let rows = 0;
  /**
   * Bytes that were parsed since the last part in which a record ended: those of the current
   * record, and at most one part more.
   */
  let recordBytes = 0;
  /** The line after the last record, and after the empty lines that follow it. */
  const nextLine = (info: { empty_lines: number }): number =>
    linesBefore + lines + (info.empty_lines - emptyLines) + 1;
  const toRecord = ({ record, info }: ParsedRecord): CsvRecord => {
    const line = nextLine(info);
    ({ lines, empty_lines: emptyLines } = info);
    rows = info.records + info.empty_lines;
    return { line, row: rows, cells: record, delimiter };
  };
  const errorOfNext = (message: string): CsvError => {
    const { info } = parser;
    return new CsvError(nextLine(info), rows + info.empty_lines - emptyLines + 1, message);
  };
  const check = (): void => {
    if (failure) throw errorOfNext(describe(failure));
  };

  parser.on('error', error => (failure = error));
  for (const piece of followedBy(first.subarray(begin), blocks)) {
    for (let start = 0; start < piece.length; start += parsedBytes) {
      // The parser reads these bytes at once, so that its records can be taken without waiting
      // for events.
      const bytes = piece.subarray(start, start + parsedBytes);
      const ended = countEnded(parser);
      parser.write(bytes);
      recordBytes = (countEnded(parser) === ended ? recordBytes : 0) + bytes.length;
      for (let parsed = parser.read(); parsed !== null; parsed = parser.read()) {
        const record = toRecord(parsed);
        if (hasValue(record)) yield record;
      }
      await new Promise(setImmediate);
      check();
      if (recordBytes > maxRecordBytes) {
        throw errorOfNext('the row is too long');
      }
    }
  }

  parser.end();
  try {
    for await (const parsed of parser) {
      const record = toRecord(parsed);
      if (hasValue(record)) yield record;
    }
  } catch (error) {
    failure ??= asError(error);
  }
  check();
}

const lineFeed = 0x0a;
const carriageReturn = 0x0d;

/**
 * Returns the bytes of a file with LF at the end of each line, as an editor shows its lines.
 * The parser takes the first line end of a file for that of all records, and counts CR LF in a
 * quoted cell twice. A CR LF may be divided between two pieces.
 */
function* withLineFeeds(pieces: Iterable<Buffer>): Generator<Buffer> {
  let isAfterReturn = false;

  for (const piece of pieces) {
    if (!isAfterReturn && !piece.includes(carriageReturn)) {
      yield piece;
      continue;
    }

    const block = Buffer.allocUnsafe(piece.length);
    let length = 0;
    for (const byte of piece) {
      const isEnded = isAfterReturn && byte === lineFeed;
      isAfterReturn = byte === carriageReturn;
      if (!isEnded) block[length++] = isAfterReturn ? lineFeed : byte;
    }
    yield block.subarray(0, length);
  }
}

/** Takes the first blocks, which have enough bytes to see the format of the file. */
function firstBytes(blocks: Iterator<Buffer>): Buffer {
  const taken: Buffer[] = [];
  let length = 0;
  for (let next = blocks.next(); !next.done; next = blocks.next()) {
    taken.push(next.value);
    length += next.value.length;
    if (length >= parsedBytes) break;
  }
  return taken.length === 1 && taken[0] ? taken[0] : Buffer.concat(taken);
}

function* followedBy(first: Buffer, others: Iterable<Buffer>): Generator<Buffer> {
  yield first;
  yield* others;
}

function createParser(delimiter: Delimiter) {
  return parse({
    bom: true,
    delimiter,
    info: true,
    record_delimiter: '\n',
    relax_column_count: true,
    skip_empty_lines: true,
  });
}

/** False for a row that a spreadsheet has left behind: separators only. */
function hasValue({ cells }: CsvRecord): boolean {
  return cells.some(cell => cell.trim() !== '');
}

/** The records and empty lines that the parser has read to their end. */
function countEnded({ info }: Parser): number {
  return info.records + info.empty_lines;
}

const delimiters: readonly Delimiter[] = [',', ';', '\t'];

/**
 * @returns the separator, and the first byte to parse: that after a line `sep=`, which Excel
 *   reads and writes
 */
function formatOf(first: Buffer): { delimiter: Delimiter; begin: number } {
  const [line, , named] =
    /^(\xef\xbb\xbf)?"?sep=([,;\t])"?\n/i.exec(first.toString('latin1', 0, 16)) ?? [];
  const said = delimiters.find(each => each === named);
  if (line !== undefined && said) return { delimiter: said, begin: line.length };

  const lines = first.toString('utf8', 0, parsedBytes).split('\n');
  const header = lines.find(text => /[^\s,;"\uFEFF]/.test(text)) ?? '';
  const count = (delimiter: Delimiter): number => header.split(delimiter).length;
  return {
    delimiter: delimiters.reduce((most, each) => (count(each) > count(most) ? each : most)),
    begin: 0,
  };
}

const messages: Record<string, string> = {
  CSV_QUOTE_NOT_CLOSED: 'a quoted cell does not end',
  CSV_INVALID_CLOSING_QUOTE: 'a quoted cell has text after its closing quote',
  INVALID_OPENING_QUOTE: 'a quote must be at the beginning of a cell',
};

function describe(error: Error): string {
  return messages[codeOf(error) ?? ''] ?? 'the file is not CSV';
}
