import { expect } from 'chai';
import { Pings } from '../../../src/service/workers/pings.ts';

describe('pings of workers', () => {
  it('a worker that answers no ping for ten seconds is reported as hanging, once', () => {
    const pings = new Pings();
    for (let second = 0; second < 10; second++) expect(pings.count([1, 2])).to.deep.equal([]);
    pings.hear(2);
    expect(pings.count([1, 2])).to.deep.equal([1]);
    expect(pings.count([1, 2])).to.deep.equal([]);
  });

  it('a worker that answers each ping late is not reported as hanging, however late each answer is', () => {
    const pings = new Pings();
    for (let second = 0; second < 100; second++) {
      if (second % 10 === 9) pings.hear(1);
      expect(pings.count([1])).to.deep.equal([]);
    }
  });

  it('only workers that serve are pinged, and a worker begins with none unanswered', () => {
    const pings = new Pings();
    for (let second = 0; second < 10; second++) pings.count([1]);
    expect(pings.count([2])).to.deep.equal([]);
    expect(pings.count([1, 2])).to.deep.equal([]);
  });
});
