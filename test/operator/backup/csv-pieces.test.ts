import { expect } from 'chai';
import { parse } from 'csv-parse/sync';
import fc from 'fast-check';
import { type CsvPiece, csvPieces } from '../../../src/operator/backup/archive/csv-pieces.ts';
import { inChunks } from '../../support/age-archives.ts';

function csvOf(rows: readonly (readonly string[])[]): Buffer {
  const lines = rows.map(
    row => `${row.map(cell => `"${cell.replaceAll('"', '""')}"`).join(',')}\n`,
  );
  return Buffer.from(lines.join(''));
}

describe('pieces of a table as CSV', () => {
  it('each piece begins with the header row and is no larger than allowed, and together they have every row once', async () => {
    const cell = fc.string({
      unit: fc.constantFrom('a', '"', '\n', ',', '\r', '\\', '.', 'ü'),
      maxLength: 12,
    });
    const row = fc.tuple(cell, cell);
    const table = fc.record({ header: row, rows: fc.array(row, { maxLength: 40 }) });

    await fc.assert(
      fc.asyncProperty(
        table,
        fc.integer({ min: 1, max: 20 }),
        fc.integer({ min: 60, max: 200 }),
        async (drawn, chunk, most) => {
          const { header, rows } = drawn;
          const csv = csvOf([header, ...rows]);

          const pieces: CsvPiece[] = await Array.fromAsync(csvPieces(inChunks(csv, chunk), most));

          const parsed = pieces.map(
            ({ bytes }) =>
              parse(bytes, { relax_column_count: true, record_delimiter: '\n' }) as string[][],
          );
          expect(parsed.map(([first]) => first)).to.deep.equal(pieces.map(() => header));
          expect(parsed.flatMap(([, ...rest]) => rest)).to.deep.equal(rows);
          expect(parsed.map(({ length }) => length - 1)).to.deep.equal(
            pieces.map(piece => piece.rows),
          );
          for (const { bytes, rows: count } of pieces) {
            expect(bytes.length <= most || count <= 1).to.equal(true);
          }
        },
      ),
    );
  });

  it('a table without rows has one piece, and one that ends within a row is refused', async () => {
    const [piece, ...others] = await Array.fromAsync(
      csvPieces(inChunks(Buffer.from('id,name\n')), 100),
    );
    expect(piece?.bytes.toString()).to.equal('id,name\n');
    expect(others).to.deep.equal([]);

    const cut = Array.fromAsync(csvPieces(inChunks(Buffer.from('id,name\n1,"a\n')), 100));
    const error = await cut.catch((reason: Error) => reason);
    expect((error as Error).message).to.equal('the rows of a table end too early');
  });
});
