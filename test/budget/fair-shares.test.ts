import { expect } from 'chai';
import fc from 'fast-check';
import { fairShares } from '../../src/budget/fair-shares.ts';

const demands = fc
  .array(fc.nat(30), { minLength: 1, maxLength: 8 })
  .map(all => all.map((wanted, index) => ({ holder: `p${index}`, kind: 'service' as const, wanted })));

describe('fair shares of a connection budget', () => {
  it('a small demand is met in full, and the others divide the rest equally', () => {
    const shares = fairShares(
      [
        { holder: 'a', kind: 'service', wanted: 40 },
        { holder: 'b', kind: 'service', wanted: 2 },
        { holder: 'c', kind: 'service', wanted: 40 },
      ],
      20,
    );
    expect([...shares].sort()).to.deep.equal([
      ['a', 9],
      ['b', 2],
      ['c', 9],
    ]);
  });

  it('the oldest command gets what one task needs, before any other command or service gets a second connection', () => {
    const shares = fairShares(
      [
        { holder: 'a', kind: 'service', wanted: 40 },
        { holder: 'b', kind: 'command', wanted: 5 },
        { holder: 'c', kind: 'command', wanted: 5 },
      ],
      7,
    );
    expect([...shares].sort()).to.deep.equal([
      ['a', 1],
      ['b', 4],
      ['c', 2],
    ]);
  });

  it('the shares never sum to more than there is, waste nothing that is wanted, and do not depend on the order', () => {
    fc.assert(
      fc.property(demands, fc.nat(60), (all, capacity) => {
        const shares = fairShares(all, capacity);
        const sum = [...shares.values()].reduce((total, share) => total + share, 0);
        const wanted = all.reduce((total, demand) => total + demand.wanted, 0);
        expect(sum).to.equal(Math.min(capacity, wanted));
        for (const demand of all) {
          const share = shares.get(demand.holder) ?? 0;
          expect(share).to.be.within(0, demand.wanted);
          // Whoever gets less than it wants has no less than anybody else, but for the rest of the division.
          if (share < demand.wanted) for (const other of shares.values()) expect(share).to.be.at.least(other - 1);
        }
        expect([...fairShares([...all].reverse(), capacity)].sort()).to.deep.equal([...shares].sort());
      }),
    );
  });
});
