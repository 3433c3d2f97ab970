import { expect } from 'chai';
import { omittedColumns, tableLines } from '../../../src/operator/cli/text-table.ts';

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

  for (const width of [120, 80, 60, 40, 20])
    it(`a table fits into a terminal of ${width} columns and keeps its first column`, () => {
      const lines = tableLines(rows, width);
      for (const line of lines) expect(line.length, line).to.be.at.most(width);
      expect(lines[1]).to.match(/^acme/);
      expect(lines[2]).to.match(width < 80 ? /^globex-internat…/ : /^globex-international/);
    });

  it('a cut cell of a table ends with an ellipsis', () => {
    expect(tableLines(rows, 80)[1]).to.match(/5be26858.*…$/);
  });

  it('the columns without room are the last ones, and are named', () => {
    expect(omittedColumns(rows, 120)).to.deep.equal([]);
    expect(omittedColumns(rows, 60)).to.deep.equal(['guid']);
    expect(omittedColumns(rows, 40)).to.deep.equal(['error', 'guid']);
  });
});
