/**
 * A body of an upload: pieces of text, so that no file is in the memory of the client as a
 * whole.
 */
export interface UploadedFile {
  readonly name: string;
  /** The parameters of `POST /api/v1/Imports`. */
  readonly query: string;
  readonly pieces: () => Iterable<Buffer>;
}

const megabyte = 1024 * 1024;
const pieceLength = 64 * 1024;
/** A little less than a file may have. */
const maxBytes = 4.9 * megabyte - pieceLength;

/** Repeats a text until it has so many bytes, and ends it. */
function* repeat(text: string, bytes: number, before = '', after = ''): Generator<Buffer> {
  const piece = Buffer.from(
    text.repeat(Math.max(1, Math.floor(pieceLength / Buffer.byteLength(text)))),
  );
  yield Buffer.from(before);
  for (let sent = 0; sent < bytes; sent += piece.length) yield piece;
  yield Buffer.from(after);
}

/** Numbered rows, in pieces. */
function* numbered(
  count: number,
  header: string,
  row: (index: number) => string,
): Generator<Buffer> {
  const size = 500;
  yield Buffer.from(`${header}\n`);
  for (let first = 0; first < count; first += size) {
    yield Buffer.from(
      Array.from({ length: Math.min(size, count - first) }, (_, i) => `${row(first + i)}\n`).join(
        '',
      ),
    );
  }
}

const entity = 'resource=Entity&ids=own';
const currency = 'resource=Currency&dryRun=true&atomic=false';

/** A body of 5 MB whose last byte is not UTF-8. */
export function* invalidUtf8(): Generator<Buffer> {
  yield* repeat('x', maxBytes);
  yield Buffer.of(0xff);
}

/**
 * Files that are meant to occupy the service: none has more than the 5 MB and 10,000 rows that
 * an import may have.
 */
export const worstFiles: readonly UploadedFile[] = [
  {
    name: 'header of 420,000 columns that do not exist',
    query: currency,
    pieces: () => [Buffer.from(`${'x,'.repeat(420_000)}\nx\n`)],
  },
  {
    name: 'header of 0.46 MB that names one column again and again',
    query: currency,
    pieces: () => repeat('Name,', 0.46 * megabyte, '', 'Name\nx\n'),
  },
  {
    name: 'header of 5 MB of commas',
    query: currency,
    pieces: () => repeat(',', maxBytes, '', '\nx\n'),
  },
  {
    name: 'row of 5 MB of commas',
    query: currency,
    pieces: () => repeat(',', maxBytes, 'Code,Name\n', '\nEUR,Euro\n'),
  },
  {
    name: 'rows of 60 KB of commas',
    query: currency,
    pieces: () => repeat(`${','.repeat(60_000)}\n`, maxBytes, 'Code,Name\n'),
  },
  {
    name: 'quoted cell of 5 MB',
    query: currency,
    pieces: () => repeat('x', maxBytes, 'Code,Name\nEUR,"', '"\n'),
  },
  {
    name: 'quoted cell of 5 MB of quotes',
    query: currency,
    pieces: () => repeat('""', maxBytes, 'Code,Name\nEUR,"', '"\n'),
  },
  {
    name: '5 MB of empty lines',
    query: currency,
    pieces: () => repeat('\n', maxBytes, 'Code,Name\n'),
  },
  {
    name: '10,000 rows of one cell',
    query: currency,
    pieces: () => numbered(10_000, 'Name', () => 'x'),
  },
  {
    name: '10,000 rows with an error in each field',
    query: currency,
    pieces: () =>
      numbered(10_000, 'Code,Name,DecimalPlaces', i => `${i},"\u0001${'y'.repeat(300)}",x`),
  },
  {
    name: '9,000 rows with 250 numbers that are no ids',
    query: 'resource=Promotion&dryRun=true&atomic=false&ids=own',
    pieces: () =>
      numbered(
        9_000,
        'PromoCode,Name,DiscountType,DiscountValue,EntityIds',
        i => `P${i},N,x,1,"${'0,'.repeat(250)}"`,
      ),
  },
  {
    name: '75 rows of 32,000 numbers that are no ids',
    query: 'resource=Promotion&dryRun=true&atomic=false&ids=own',
    pieces: () =>
      numbered(
        75,
        'PromoCode,Name,DiscountType,DiscountValue,EntityIds',
        i => `P${i},N,x,1,"${'0,'.repeat(32_000)}"`,
      ),
  },
  {
    name: '10,000 rows of entities',
    query: entity,
    pieces: () => numbered(10_000, 'Name,EntityType,StatusId', i => `Customer ${i},customer,1`),
  },
  {
    name: '1,200 rows of 4,000 characters',
    query: 'resource=SystemOption&dryRun=true&atomic=false',
    pieces: () =>
      numbered(1_200, 'SystemOptionTypeId,Value', i => `1,${`${i}`.padEnd(3_990, 'v')}`),
  },
];
