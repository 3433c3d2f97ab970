import { expect } from 'chai';
import { decimal } from '../../../src/lib/http/request/fields.ts';
import * as values from '../../sales/resources/field-values.ts';

describe('fields of requests', () => {
  for (const decimals of [1, 2, 4, 6]) {
    it(`a number of ${decimals} decimals takes as many, and says so when it refuses more`, () => {
      const contract = decimal({ min: 0, max: 100, decimals });
      const field = values.decimal({ decimals });

      const refused = field.good({} as values.References).filter(([json]) => !accepts(json));
      const accepted = field.bad.filter(accepts);
      const { error } = contract.safeParse(Number(`1.${'1'.repeat(decimals + 1)}`));

      expect({ refused, accepted }).to.deep.equal({ refused: [], accepted: [] });
      expect(error?.issues[0]?.message).to.equal(`must have at most ${decimals} decimals`);

      function accepts(json: string): boolean {
        return contract.safeParse(JSON.parse(json)).success;
      }
    });
  }
});
