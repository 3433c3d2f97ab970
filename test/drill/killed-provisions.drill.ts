import { expect } from 'chai';
import { argumentsOf, killMoments, provisionChecks } from '../operator/lifecycle/provision-checks.ts';
import { useWorld } from '../support/world.ts';

describe('drill: killed and concurrent provisions', () => {
  const world = useWorld();

  const { killAtMoments, expectCompleted, provisionAlone, expectServed } = provisionChecks(() => world);

  it('of 16 provisions killed at any moment, the next run completes each, and no tenant is served before', () =>
    killAtMoments(16));

  for (const moment of killMoments)
    it(`a provision killed ${moment.name} is completed by the next one, and the tenant is not served before`, () =>
      expectCompleted(moment));

  it('concurrent provisions of different slugs create each tenant', async () => {
    const slugs = ['one-of-three', 'two-of-three', 'three-of-three'];
    const documents = await Promise.all(slugs.map(slug => provisionAlone(...argumentsOf(slug))));
    await Promise.all(documents.map(expectServed));
    expect(new Set(documents.map(({ guid }) => guid)).size).to.equal(3);
  });
});
