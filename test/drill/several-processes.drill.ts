import { expect } from 'chai';
import { createServiceProcesses } from '../support/service-processes.ts';
import { createWorld, type World } from '../support/world.ts';

describe('drill: several processes on one control database', () => {
  let world: World;
  const processes = createServiceProcesses();

  before(async () => {
    world = await createWorld();
  });
  after(async () => {
    await processes.killAll();
    await world.close();
  });

  /** @returns the URL of a new process that listens on a port of its own, without a `PUBLIC_URL` */
  async function start(): Promise<string> {
    return (await processes.start({ ...world.environment, PUBLIC_URL: '' })).url;
  }

  it('tokens of one process are accepted by another one on another port, without PUBLIC_URL', async () => {
    const [first, second] = await Promise.all([start(), start()]);
    const admin = (await world.login(world.acme)).at(first);
    const login = await admin.post('/api/v1/auth/login', world.acme.admin, { 'X-Tenant': world.acme.guid });
    const { accessToken, refreshToken } = login.body;
    const statuses: number[] = [];
    for (let i = 0; i < 20; i++) {
      const url = i % 2 === 0 ? first : second;
      const response = await fetch(`${url}/api/v1/EntityStatus`, {
        headers: { Authorization: `Bearer ${accessToken}` },
      });
      statuses.push(response.status);
    }
    expect(statuses).to.deep.equal(Array(20).fill(200));
    const refreshed = await admin
      .at(second)
      .post('/api/v1/auth/refresh', { refreshToken }, { 'X-Tenant': world.acme.guid });
    expect(refreshed.status).to.equal(200);
  });
});
