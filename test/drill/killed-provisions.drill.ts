import { provisionChecks } from '../operator/provisioning/provision-checks.ts';
import { createWorld, type World } from '../support/world.ts';

describe('drill: killed provisions', () => {
  let world: World;

  before(async () => {
    world = await createWorld();
  });
  after(() => world.close());

  it('of 16 provisions killed at any moment, the next run completes each, and no tenant is served before', () =>
    provisionChecks(() => world).killAtMoments(16));
});
