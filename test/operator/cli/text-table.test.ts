import { expect } from 'chai';
import { cutErrors, cutReasons, omittedColumns, tableLines } from '../../../src/operator/command/text-table.ts';

describe('text table', () => {
  const guid = '5be26858-78fa-44f5-a95f-8ca37105bd5a';
  const rows = [
    { slug: 'acme', name: 'Acme Ltd', status: 'active', error: null, guid },
    { slug: 'globex-international', name: 'Globex', status: 'suspended', error: 'index missing', guid },
  ];

  it('the columns of a table are aligned, and nothing is cut without a terminal', () => {
    const [head, first, second] = tableLines(rows);
    expect(head).to.match(/^slug +name +status +error +guid$/);
    expect(first).to.equal(`acme                  Acme Ltd  active     –              ${guid}`);
    expect(second?.indexOf(guid)).to.equal(first?.indexOf(guid));
  });

  for (const width of [120, 80, 60, 40, 20, 12])
    it(`a table fits into a terminal of ${width} columns and keeps its first column`, () => {
      const lines = tableLines(rows, width);
      for (const line of lines) expect(line.length, line).to.be.at.most(width);
      expect(lines[1]).to.match(/^acme/);
      expect(lines[2]).to.match(width < 20 ? /^globex-inte…/ : /^globex-international/);
    });

  it('free text is cut, with an ellipsis; an id or a time is shown whole or not at all', () => {
    const createdAt = '2026-11-23T06:57:50.776Z';
    const keys = [{ kid: guid, note: 'made by hand for the second shop', createdAt, retiredAt: createdAt }];
    expect(tableLines(keys, 80)[1]).to.equal(`${guid}  made by hand for th…  2026-11-23T06:57:50Z`);
    expect(omittedColumns(keys, 80)).to.deep.equal(['retiredAt']);
    expect(tableLines(keys)[1]).to.equal(`${guid}  ${keys[0]?.note}  ${createdAt}  ${createdAt}`);
  });

  it('a cell such as "constructor", which every object has as a property, is text like any other', () => {
    expect(tableLines([{ slug: 'constructor' }])).to.deep.equal(['slug', 'constructor']);
  });

  it('the last columns are left out when there is no room for them, and are named', () => {
    expect(omittedColumns(rows, 120)).to.deep.equal([]);
    expect(omittedColumns(rows, 80)).to.deep.equal(['guid']);
    expect(omittedColumns(rows, 40)).to.deep.equal(['status', 'error', 'guid']);
  });

  it('an error that is cut follows the table as a whole, once for all rows that have it', () => {
    const error = 'check constraint "currencies_no_xxx" of relation "currencies" is violated by some row';
    const failed = ['shop-3', 'shop-7'].map(slug => ({ slug, error }));
    expect(
      cutErrors([...failed, { slug: 'shop-8', error: 'short' }, { slug: 'shop-9', error: null }], 40),
    ).to.deep.equal(['', '2 rows with this error:', error]);
    expect(cutErrors(failed, 120)).to.deep.equal([]);
  });

  it('a reason that is cut or has no room follows the table as a whole, for each database', () => {
    const databases = [
      { slug: 'acme', database: 'tenant_5', why: 'before the last move: npx backoffice move acme --back' },
      { slug: 'acme', database: 'tenant_6', why: 'serves the tenant' },
    ];
    for (const width of [40, 20])
      expect(cutReasons(databases, width), String(width)).to.deep.equal([
        '',
        'tenant_5: before the last move: npx backoffice move acme --back',
        'tenant_6: serves the tenant',
      ]);
    expect(cutReasons(databases, 120)).to.deep.equal([]);
  });
});
