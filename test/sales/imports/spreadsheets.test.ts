import { execFile, spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { sql, useLogin, useWorld } from '../../support/world.ts';

const csv = { 'Content-Type': 'text/csv' };
const calcInstalled = spawnSync('soffice', ['--version']).status === 0;

describe('CSV as spreadsheets save it', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');

  async function importFile(resource: string, file: string | Uint8Array) {
    const path = `/api/v1/Imports?resource=${resource}&mode=upsert`;
    const { status, body } = await admin.send('POST', path, file, csv);
    expect(status, JSON.stringify(body)).to.equal(200);
    return body;
  }

  afterEach(() => sql(world.acme, 'set session_replication_role = replica; delete from tax_codes'));

  const rates = async () => {
    const { body } = await admin.get('/api/v1/TaxCodes', { 'Cache-Control': 'no-cache' });
    return Object.fromEntries(
      body.map(({ Code, Rate }: { Code: string; Rate: number }) => [Code, Rate]),
    );
  };

  const kinds: [title: string, file: string][] = [
    [
      'Excel with a mark and semicolons',
      '\uFEFFCode;Name;Rate\r\nA1;Normal;19,6\r\nA2;Reduced;7\r\n',
    ],
    ['Excel with a line sep=', 'sep=;\r\nCode;Name;Rate\r\nA1;Normal;19,6\r\nA2;Reduced;7\r\n'],
    [
      'Excel with a mark and a line sep=',
      '\uFEFFsep=;\r\nCode;Name;Rate\r\nA1;Normal;19,6\r\nA2;Reduced;7\r\n',
    ],
    [
      'Excel for Macintosh, with carriage returns',
      'Code;Name;Rate\rA1;Normal;19,6\rA2;Reduced;7\r',
    ],
    ['Numbers with commas', 'Code,Name,Rate\nA1,Normal,19.6\nA2,Reduced,7'],
    ['Numbers in a country with decimal commas', 'Code;Name;Rate\nA1;Normal;19,6\nA2;Reduced;7'],
    [
      'tabs of cells that were copied',
      'Code\tName\tRate\r\nA1\tNormal\t19,6\r\nA2\tReduced\t7\r\n',
    ],
    [
      'LibreOffice with all texts in quotes',
      '"Code","Name","Rate"\n"A1","Normal",19.6\n"A2","Reduced",7\n',
    ],
    [
      'rows and columns that were emptied',
      ';;;;\r\nCode;;Name;Rate;;\r\n;;;;;\r\nA1;;Normal;19,6;;\r\n;;;;;\r\nA2;;Reduced;7;;\r\n;;;;;\r\n; ;;;;\r\n',
    ],
  ];

  for (const [title, file] of kinds) {
    it(`the same records are imported from ${title}`, async () => {
      const report = await importFile('TaxCode', file);

      expect(report, JSON.stringify(report.Errors)).to.include({
        Applied: true,
        Rows: 2,
        Refused: 0,
      });
      expect(await rates()).to.deep.equal({ A1: 19.6, A2: 7 });
    });
  }

  it('a number that may be a thousand or a fraction is refused in a file with decimal commas, by its line', async () => {
    const file = (rate: string) => `Code;Name;Rate\nB1;Normal;5\nB2;Other;${rate}\n`;

    const { Applied, Errors } = await importFile('TaxCode', file('1.500'));

    expect(Applied).to.equal(false);
    expect(Errors).to.deep.equal([
      {
        Line: 3,
        Row: 3,
        Cell: 'C3',
        Field: 'Rate',
        Value: '1.500',
        Code: 'ambiguous',
        Reason: 'is 1500 or 1,5: write one of them',
      },
    ]);

    for (const [rate, value] of [
      ['1,500', 1.5],
      ['0.125', 0.125],
      ['12.5', 12.5],
      ['-0', 0],
    ] as const) {
      const report = await importFile('TaxCode', file(rate));
      expect(report.Applied, JSON.stringify(report.Errors)).to.equal(true);
      expect((await rates()).B2, rate).to.equal(value);
    }

    for (const rate of ['1.500,25', '1.500.000', '1 500', '1,5,0', '12.500,0']) {
      const report = await importFile('TaxCode', file(rate));
      expect(report.Errors[0], rate).to.include({ Line: 3, Field: 'Rate', Code: 'wrong_type' });
    }
  });

  it('a number in a file with commas has a decimal point, and never a comma', async () => {
    const point = await importFile('TaxCode', 'Code,Name,Rate\nC1,Normal,1.500\n');
    const comma = await importFile('TaxCode', 'Code,Name,Rate\nC1,Normal,"1,5"\n');

    expect(point.Applied).to.equal(true);
    expect((await rates()).C1).to.equal(1.5);
    expect(comma.Errors[0]).to.include({ Line: 2, Field: 'Rate', Code: 'wrong_type' });
  });

  it('a cell that is no number, and no word for yes or no, is refused with the way to write it', async () => {
    const point = 'must be a number in digits, with a point before decimals, such as 1234.5';
    const comma = 'must be a number in digits, with a comma before decimals, such as 1234,5';
    const reasons = async (resource: string, file: string) =>
      (await importFile(resource, file)).Errors.map(
        ({ Cell, Reason }: Record<string, string>) => `${Cell}: ${Reason}`,
      );

    for (const cell of ['"1,5"', '19.6 %', "1'234.50", '1.5E+03', '#N/A', '=1+1']) {
      const file = `Code,Name,Rate\nG1,Normal,${cell}\n`;
      expect(await reasons('TaxCode', file), cell).to.deep.equal([`C2: ${point}`]);
    }
    for (const cell of ['19,6 %', '1\u202f234,50', '\u22125']) {
      const file = `Code;Name;Rate\nG1;Normal;${cell}\n`;
      expect(await reasons('TaxCode', file), cell).to.deep.equal([`C2: ${comma}`]);
    }
    const file = 'Code;Name;Rate;IsActive\nG1;Normal;much;WAHR\n';
    expect(await reasons('TaxCode', file)).to.have.members([
      `C2: ${comma}`,
      'D2: must be TRUE or FALSE',
    ]);
  });

  it('the error of a column names it by its letter, as the spreadsheet does', async () => {
    const reasons = async (file: string) => {
      const { Applied, Errors } = await importFile('TaxCode', file);
      expect(Applied).to.equal(false);
      return Errors.map(
        ({ Line, Cell, Reason }: { Line: number; Cell: string; Reason: string }) =>
          `${Line} ${Cell}: ${Reason}`,
      );
    };
    const many = Array.from({ length: 27 }, (_, index) => `x${index}`).join(';');

    expect(await reasons('sep=;\nCode;Nmae;Rate\nD1;Other;1\n')).to.deep.equal([
      '2 B1: is not a field of this resource',
    ]);
    expect((await reasons(`${many}\n`)).at(-1)).to.equal('1 AA1: is not a field of this resource');
    expect(await reasons('Code;Name;Rate;Name\nD1;Other;1;Again\n')).to.deep.equal([
      '1 D1: is the name of two columns: B and D',
    ]);
    expect(await reasons('Code;;Name;Rate\nD1;;Other;1\nD2;note;Other;1\n')).to.deep.equal([
      '3 B3: has a value in column B, which has no name',
    ]);
    expect(await reasons('Code;Name;Rate\nD1;Other;1;;note\n')).to.deep.equal([
      '2 E2: has a value in column E, which has no name',
    ]);
  });

  describe('the errors of an import', () => {
    const file =
      '\uFEFFsep=;\r\nCode;name;Rate\r\nF1;"two\nlines";1\r\n\r\n;;\r\nF2;=1+1;much\r\nF3;Other\r\nF4;"a;""b""";x\uD83D\uDE00\r\n';
    const path = '/api/v1/Imports?resource=TaxCode&mode=create';
    const cells = [
      [3, 2, 'B2', 'Name'],
      [7, 5, 'C5', 'Rate'],
      [8, 6, '', ''],
      [9, 7, 'C7', 'Rate'],
    ];

    it('the errors of an import name the line of the file, and the row and the cell that a spreadsheet shows', async () => {
      const { Errors } = await importFile('TaxCode', file);

      expect(
        Errors.map(({ Line, Row, Cell, Field }: Record<string, unknown>) => [
          Line,
          Row,
          Cell,
          Field,
        ]),
      ).to.deep.equal(cells);
      expect(Errors.map(({ Value }: Record<string, unknown>) => Value)).to.deep.equal([
        'two\nlines',
        'much',
        '',
        'x\uD83D\uDE00',
      ]);
    });

    it('with Accept: text/csv, the errors of an import are a file for a spreadsheet, in which no cell is a formula', async () => {
      const formula = 'Code,Name,Rate\nF5,Name,=1+1\n';

      const { status, headers, body } = await admin.send('POST', `${path}&bom=true`, formula, {
        ...csv,
        Accept: 'text/csv',
      });

      expect(status).to.equal(200);
      expect(headers.get('content-type')).to.equal('text/csv; charset=utf-8; header=present');
      expect(headers.get('content-disposition')).to.equal(
        'attachment; filename="import-errors.csv"',
      );
      expect(body).to.equal(
        '\uFEFFLine,Row,Cell,Field,Value,Code,Reason\r\n2,2,C2,Rate,\'=1+1,wrong_type,"must be a number in digits, with a point before decimals, such as 1234.5"\r\n',
      );
    });

    it('the file of errors is a header alone where nothing is wrong, and a repeated key has the same file', async () => {
      const headers = { ...csv, Accept: 'text/csv', 'Idempotency-Key': randomUUID() };
      const send = () => admin.send('POST', path, 'Code,Name,Rate\nF9,Name,1\n', headers);

      const [first, second] = [await send(), await send()];

      expect(first.body).to.equal('Line,Row,Cell,Field,Value,Code,Reason\r\n');
      expect(second.body).to.equal(first.body);
      expect(second.headers.get('idempotency-replayed')).to.equal('true');
    });

    it('the errors of an import are JSON where JSON is wanted as much', async () => {
      const { body } = await admin.send('POST', path, 'Code\n', { ...csv, Accept: '*/*' });

      expect(body.Errors).to.deep.equal([]);
    });
  });

  it('a file in the character set of Windows is refused with the way to save it', async () => {
    const file = Buffer.from('Code;Name;Rate\r\nE1;Größe;1\r\n', 'latin1');

    const { status, body } = await admin.send(
      'POST',
      '/api/v1/Imports?resource=TaxCode',
      file,
      csv,
    );

    expect(status).to.equal(400);
    expect(body.detail).to.contain('"CSV UTF-8"');
  });

  it('a sheet that LibreOffice saves with blank rows and columns is imported', async function () {
    if (!calcInstalled) return this.skip();

    const folder = await mkdtemp(join(tmpdir(), 'calc-'));
    const cell = (value: string | number | undefined) => {
      if (value === undefined) return '<table:table-cell/>';
      const type = typeof value === 'number' ? `float" office:value="${value}` : 'string';
      return `<table:table-cell office:value-type="${type}"><text:p>${value}</text:p></table:table-cell>`;
    };

    const rows = [
      ['Code', undefined, 'Name', 'Rate'],
      [],
      ['F1', undefined, 'Größe; "m"', 19.6],
      [],
      ['F2', undefined, 'Two "lines"', 7],
    ];

    const sheet = rows
      .map(row => `<table:table-row>${row.map(cell).join('')}</table:table-row>`)
      .join('');
    const names = ['office', 'table', 'text'].map(
      name => `xmlns:${name}="urn:oasis:names:tc:opendocument:xmlns:${name}:1.0"`,
    );
    const attributes = `${names.join(' ')} office:version="1.2" office:mimetype="application/vnd.oasis.opendocument.spreadsheet"`;
    const document = `<office:document ${attributes}><office:body><office:spreadsheet><table:table table:name="Rates">${sheet}</table:table></office:spreadsheet></office:body></office:document>`;

    await writeFile(
      join(folder, 'rates.fods'),
      `<?xml version="1.0" encoding="UTF-8"?>${document}`,
    );

    const filter = 'csv:Text - txt - csv (StarCalc):59,34,76'; // semicolons, quotes, UTF-8
    const home = `-env:UserInstallation=file://${folder}/profile`;
    const convert = [
      home,
      '--headless',
      '--convert-to',
      filter,
      '--outdir',
      folder,
      join(folder, 'rates.fods'),
    ];

    await promisify(execFile)('soffice', convert, { env: { ...process.env, LANG: 'C.UTF-8' } });

    const report = await importFile('TaxCode', await readFile(join(folder, 'rates.csv')));
    await rm(folder, { recursive: true });

    expect(report, JSON.stringify(report.Errors)).to.include({
      Applied: true,
      Rows: 2,
      Refused: 0,
    });
    expect(await rates()).to.include({ F1: 19.6, F2: 7 });
  });
});
