import { expect } from 'chai';
import { withConnection } from '../../src/fleet/admin-connection.ts';
import type { Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { createWorld, type World } from '../support/world.ts';

const path = '/api/v1/EntityStatus';
const readThrough = { 'Cache-Control': 'no-cache' };

describe('A tenant whose requests do not come to an end', () => {
  let world: World;
  let acme: Client;
  let globex: Client;

  before(async () => {
    world = await createWorld({ ACQUIRE_TIMEOUT_MS: '1500' });
    acme = await world.login(world.acme);
    globex = await world.login(world.globex);
  });
  after(() => world.close());

  it('has no more under way than its share, is told that it is too much, and holds up nobody else', async () => {
    await withConnection(world.acme.adminUrl, async holder => {
      await holder.query('begin; lock table entity_statuses in access exclusive mode');
      const flood = Array.from({ length: 100 }, () => acme.get(path, readThrough));
      await eventually(() => world.service.databases.usage.waiting > 0);
      for (let i = 0; i < 20; i++) {
        expect((await globex.get(path, readThrough)).status).to.equal(200);
        // 32 of the flood are under way: 8 have a connection, 24 wait for one. The others wait for their turn.
        expect(world.service.databases.usage.inUse).to.be.at.most(8);
        expect(world.service.databases.usage.waiting).to.be.at.most(24);
      }
      const refused = await Promise.race(flood);
      expect([refused.status, refused.body.code]).to.deep.equal([503, 'overloaded']);
      expect(refused.headers.get('retry-after')).to.match(/^\d+$/);
      await holder.query('rollback');
      for (const { status } of await Promise.all(flood)) expect(status).to.be.oneOf([200, 503]);
    });
    expect((await acme.get(path, readThrough)).status).to.equal(200);
  });

  it('is served every one of its requests when they do', async () => {
    const answers = await Promise.all(Array.from({ length: 300 }, () => acme.get(path)));
    expect(answers.every(({ status }) => status === 200)).to.equal(true);
  });
});
