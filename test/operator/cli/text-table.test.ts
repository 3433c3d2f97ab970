import { expect } from 'chai';
import { messageText, tableText } from '../../../src/operator/command/text-table.ts';

describe('text table', () => {
  const guid = '5be26858-78fa-44f5-a95f-8ca37105bd5a';
  const rows = [
    { slug: 'acme', name: 'Acme Ltd', status: 'active', error: null, guid },
    {
      slug: 'globex-international',
      name: 'Globex',
      status: 'suspended',
      error: 'index missing',
      guid,
    },
  ];

  const lines = (of: object[], width = Number.POSITIVE_INFINITY) =>
    tableText(of, '', width).split('\n');

  it('the columns of a table are aligned, and nothing is cut without a terminal', () => {
    const [head, first, second] = lines(rows);
    expect(head).to.match(/^slug +name +status +error +guid$/);
    expect(first).to.equal(`acme                  Acme Ltd  active     –              ${guid}`);
    expect(second?.indexOf(guid)).to.equal(first?.indexOf(guid));
  });

  for (const width of [120, 80, 60, 40, 20, 12]) {
    it(`a table fits into a terminal of ${width} columns and keeps its first column`, () => {
      const [head = '', first = '', second = ''] = lines(rows, width);
      for (const line of [head, first, second]) expect(line.length, line).to.be.at.most(width);
      expect(first).to.match(/^acme/);
      expect(second).to.match(width < 20 ? /^globex-inte…/ : /^globex-international/);
    });
  }

  it('free text is cut, with an ellipsis; an id or a time is shown whole or not at all', () => {
    const createdAt = '2026-11-23T06:57:50.776Z';
    const keys = [
      { kid: guid, note: 'made by hand for the second shop', createdAt, retiredAt: createdAt },
    ];
    const [, row, note] = lines(keys, 80);
    expect(row).to.equal(`${guid}  made by hand for th…  2026-11-23T06:57:50Z`);
    expect(note).to.equal('Not shown at this width: retiredAt');
    expect(lines(keys)[1]).to.equal(`${guid}  ${keys[0]?.note}  ${createdAt}  ${createdAt}`);
  });

  it('a text that somebody else has written sends no command to the terminal, and reverses no other column', () => {
    const name = 'A\x1b[31m\x9b1m\r\n\u202egnp.\u2066exe\u2069\u200f';

    const [, row = ''] = lines([{ name, status: 'active' }]);
    const message = messageText(`There is no tenant ${name}.\nList them.`);

    expect(row).to.equal('A [31m 1m gnp. exe \u200f  active');
    expect(message).to.equal('There is no tenant A [31m 1m \n gnp. exe \u200f.\nList them.');
  });

  it('a cell such as "constructor", which every object has as a property, is text like any other', () => {
    expect(lines([{ slug: 'constructor' }])).to.deep.equal(['slug', 'constructor']);
  });

  it('the last columns are left out when there is no room for them, and are named', () => {
    expect(lines(rows, 120)).to.have.length(3);
    expect(lines(rows, 80).slice(3)).to.deep.equal(['Not shown at this width: guid']);
    expect(lines(rows, 40)[3]).to.equal('Not shown at this width: status, guid');
  });

  it('an error that is cut follows the table as a whole, once for all rows that have it', () => {
    const error =
      'check constraint "currencies_no_xxx" of relation "currencies" is violated by some row';
    const failed = [3, 4, 5, 6, 7].map(number => ({ slug: `shop-${number}`, error }));
    const others = [
      { slug: 'shop-8', error: 'short' },
      { slug: 'shop-9', error: null },
    ];

    const below = lines([...failed, ...others], 40).slice(8);
    expect(below[0]).to.equal('');
    expect(below.slice(1).join(' ')).to.equal(`shop-3, shop-4, shop-5, 2 more: ${error}`);

    expect(lines(failed, 120)).to.have.length(6);
  });

  it('a reason that is cut or has no room follows the table as a whole, for each database', () => {
    const databases = [
      {
        slug: 'acme',
        database: 'tenant_5',
        why: 'before the last move: bin/backoffice move acme --back',
      },
      { slug: 'acme', database: 'tenant_6', why: 'serves the tenant' },
    ];

    const below = (width: number) => lines(databases, width).slice(3).join(' ');
    const moved = ' tenant_5: before the last move: bin/backoffice move acme --back';

    expect(below(40)).to.equal(moved);
    expect(below(20)).to.equal(`${moved}  tenant_6: serves the tenant`);
    expect(below(120)).to.equal('');
  });
});
