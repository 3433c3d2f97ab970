import { expect } from 'chai';
import { openControlDatabase } from '../../src/control/database.ts';
import { newProcess } from '../../src/control/process-identity.ts';
import { eventually } from '../support/eventually.ts';
import { useWorld } from '../support/world.ts';

describe('pool of the control database', () => {
  const world = useWorld();

  it('a share that became smaller is kept also while requests wait for connections without a pause', async () => {
    let share = 4;
    const member = { process: newProcess('service'), maxControl: () => share, onControlRefused: () => {} };
    const control = openControlDatabase(world.installation.controlUrl, share, member);
    const pool = await control.em.getConnection().getNativeClient();
    let isLoaded = true;
    const load = Array.from({ length: 30 }, async () => {
      while (isLoaded) await pool.query('select pg_sleep(0.01)');
    });
    await eventually(() => pool.totalCount === share && pool.waitingCount > 0);

    share = 2;

    await eventually(() => pool.totalCount === share);
    expect(pool.waitingCount).to.be.above(0);
    isLoaded = false;
    await Promise.all(load);
    await control.close();
  });
});
