import { expect } from 'chai';
import { type CsvRecord, readCsv } from '../../../src/sales/imports/read-csv.ts';
import type { Client } from '../../support/client.ts';
import { useRandom } from '../../support/random.ts';
import { useLogin, useWorld } from '../../support/world.ts';

const lineEnds = ['\r\n', '\n', '\r'];

/** The lines that an editor shows of a text. */
const linesOf = (text: string): string[] => text.split(/\r\n|\n|\r/);

async function recordsOf(pieces: Iterable<Buffer>): Promise<CsvRecord[]> {
  const records: CsvRecord[] = [];
  for await (const record of readCsv(pieces)) records.push(record);
  return records;
}

describe('line ends of CSV files', () => {
  const random = useRandom();
  const below = (bound: number): number => random.integer(0, bound - 1);
  const oneOf = <Item>(items: readonly Item[]): Item => items[below(items.length)] as Item;

  /** A cell: its text in the file, and its text as it is read. */
  function randomCell(isLong: boolean): { written: string; read: string } {
    if (below(3) > 0) {
      const text = oneOf(['', 'x', 'ä😀', '12', 'a b']);
      return { written: text, read: text };
    }

    const parts = Array.from({ length: below(isLong ? 400 : 4) }, () =>
      oneOf(['y', ',', ';', '""', ' ', 'longer words', ...lineEnds]),
    );
    const written = parts.join('');
    return { written: `"${written}"`, read: linesOf(written).join('\n').replaceAll('""', '"') };
  }

  /** Divides bytes into pieces, also between a carriage return and its line feed. */
  function* pieces(bytes: Buffer, maxLength: number): Generator<Buffer> {
    for (let at = 0; at < bytes.length; ) {
      const length = maxLength > 100 ? maxLength : below(maxLength + 1);
      yield bytes.subarray(at, at + length);
      at += length;
    }
  }

  it('every mixture of CR LF, LF and CR is read alike, and a record has the line that an editor shows, whatever the pieces are', async () => {
    for (let round = 0; round < 120; round++) {
      const ends = oneOf([lineEnds, lineEnds, ['\r\n'], ['\n'], ['\r'], ['\r\n', '\n']]);
      const end = (): string => oneOf(ends);
      let text = oneOf(['', '', 'sep=,']);
      if (text !== '') text += end();
      const expected: { line: number; cells: string[] }[] = [];

      const records = below(round % 10 === 0 ? 400 : 12) + 1;
      for (let n = 0; n < records; n++) {
        while (below(4) === 0) text += end();
        // The line ends of two lines may not become one.
        if (text.endsWith('\r') && below(4) === 0) text += `\r`;
        const cells = [
          { written: 'k', read: 'k' },
          ...Array.from({ length: 3 }, () =>
            n === 0 ? { written: 'h', read: 'h' } : randomCell(round % 20 === 0),
          ),
        ];
        expected.push({ line: linesOf(text).length, cells: cells.map(({ read }) => read) });
        text += cells.map(({ written }) => written).join(',');
        if (n < records - 1 || below(2) === 0) text += end();
      }
      while (below(2) === 0 && /[\r\n]$/.test(text)) text += end();

      const bytes = Buffer.from(oneOf(['', '\uFEFF']) + text);
      for (const length of [1, 7, 4_096, 8_192, bytes.length]) {
        const read = await recordsOf(pieces(bytes, length));
        expect(
          read.map(({ line, cells }) => ({ line, cells })),
          JSON.stringify({ text, length }),
        ).to.deep.equal(expected);
      }
    }
  });

  it('a CR LF that is divided between two parts of 8 KiB is one line end', async () => {
    const file = (before: number): Buffer =>
      Buffer.from(`Code,Name\r\n"${'x'.repeat(before)}\r\ny",Two\r\nC,Last\r\n`);

    for (let before = 8_170; before < 8_200; before++) {
      const records = await recordsOf([file(before)]);
      expect(records.map(({ line }) => line)).to.deep.equal([1, 2, 4]);
      expect(records[1]?.cells).to.deep.equal([`${'x'.repeat(before)}\ny`, 'Two']);
    }
  });

  const world = useWorld();
  const admin = useLogin(world, 'acme');
  useLogin(world, 'globex');

  async function importFile(client: Client, query: string, file: string) {
    const { status, body } = await client.post(`/api/v1/Imports?${query}`, file, {
      'Content-Type': 'text/csv',
    });
    expect(status, JSON.stringify(body)).to.equal(200);
    return body;
  }

  const promotions = 'resource=Promotion&dryRun=true';
  const header = 'PromoCode,Name,DiscountType,DiscountValue,Description';

  for (const end of lineEnds) {
    it(`the errors of an import name the line that an editor shows, after a quoted cell with ${JSON.stringify(end)}`, async () => {
      const file = [
        header,
        `P1,N,Percentage,3,"a${end}b${end}${end}c"`,
        'P2,N,Percentage,x,c',
        '',
        'P1,N,Percentage,3,again',
        '',
      ].join(end);

      const { Errors } = await importFile(admin, promotions, file);

      expect(Errors.map(({ Line }: { Line: number }) => Line)).to.deep.equal([6, 8]);
      expect(Errors[1].Reason).to.include('line 2');
    });
  }

  it('an import takes a header, rows and empty lines that end in different ways', async () => {
    const columns = 'Code,Name,Rate,IsActive';
    const files = [
      `${columns}\nL1,One,1,TRUE\r\nL2,Two,2,\r\nL3,Three,3,"FALSE"\r\n`,
      `${columns}\r\nL1,One,1,TRUE\r\nL2,Two,2,\r\n\n\n`,
      `${columns}\rL1,One,1,TRUE\nL2,Two,2,\r\n\r\r`,
      `\uFEFF${columns}\n\r\nL1,One,1,"TRUE"\rL2,Two,2,`,
    ];

    for (const file of files) {
      const report = await importFile(admin, 'resource=TaxCode&dryRun=true', file);
      expect(report.Errors, JSON.stringify(file)).to.deep.equal([]);
    }
  });

  it('a quoted cell that does not end, or has text after it, is an error of the line on which its row begins', async () => {
    for (const [cell, reason] of [
      ['"x"y', 'text after its closing quote'],
      ['"x', 'does not end'],
    ]) {
      const file = `${header}\nP1,N,Percentage,3,"a\r\nb"\r\n\r\rP2,N,Percentage,3,${cell}\r\nP3,N,Percentage,4,\n`;

      const { Errors } = await importFile(admin, promotions, file);

      expect(Errors[0].Reason).to.include(reason);
      expect(Errors[0].Line).to.equal(6);
      expect(Errors[0].Row).to.equal(5);
    }
  });
});
