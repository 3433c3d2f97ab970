import { expect } from 'chai';
import { tableLines } from '../../../src/operator/cli/text-table.ts';

describe('a table of the command line', () => {
  const guid = '5be26858-78fa-44f5-a95f-8ca37105bd5a';
  const rows = [
    { slug: 'acme', name: 'Acme Ltd', status: 'active', error: null, guid },
    { slug: 'globex-international', name: 'Globex', status: 'suspended', error: 'index missing', guid },
  ];

  it('is aligned, and loses nothing where nobody looks at it', () => {
    const [head, first, second] = tableLines(rows);
    expect(head).to.match(/^slug +name +status +error +guid$/);
    expect(first).to.equal(`acme                  Acme Ltd  active     –              ${guid}`);
    expect(second?.indexOf(guid)).to.equal(first?.indexOf(guid));
  });

  for (const width of [120, 80, 60, 40, 20])
    it(`takes no more than the ${width} columns of a terminal, and keeps what comes first`, () => {
      const lines = tableLines(rows, width);
      for (const line of lines) expect(line.length, line).to.be.at.most(width);
      expect(lines[1]).to.match(/^acme/);
      expect(lines[2]).to.match(width < 80 ? /^globex-internat…/ : /^globex-international/);
    });

  it('that is cut shows where', () => {
    expect(tableLines(rows, 80)[1]).to.match(/5be26858.*…$/);
  });
});
