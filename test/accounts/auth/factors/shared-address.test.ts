import { expect } from 'chai';
import { useWorld } from '../../../support/world.ts';
import { factorWorld } from './factor-world.ts';

describe('the limit of logins with a second factor', () => {
  const world = useWorld({ RATE_LIMIT_LOGIN: '5/15m' });
  const people = factorWorld(world);

  it('lets more people than it allows logins complete theirs from one address, and counts those of each', async () => {
    const all = [];
    for (let i = 0; i < 8; i++) {
      const { person, client } = await people.add(world.acme);
      const { secret } = await people.addTotp(client);
      all.push({ person, secret });
    }

    for (const { person, secret } of all) {
      const { body } = await people.login(person);
      const code = people.code(secret);
      const completed = await people.verify(person, { challenge: body.challenge, code });
      expect(completed.status, JSON.stringify(completed.body)).to.equal(200);
    }

    const [{ person }] = all as [(typeof all)[0]];
    const statuses: number[] = [];
    for (let i = 0; i < 6; i++) statuses.push((await people.login(person)).status);
    expect(statuses).to.include(429);
  });

  it('counts the passwords that are sent to verify, whatever challenges are beside them', async () => {
    const { client } = await people.add(world.acme);
    const body = { password: 'not the password of anybody', code: '123456' };

    const statuses: number[] = [];
    for (let i = 0; i < 6; i++) {
      const sent = { ...body, challenge: `sbc_${String(i).repeat(40)}` };
      statuses.push((await client.post('/api/v1/auth/verify', sent)).status);
    }

    expect(statuses[0]).to.equal(401);
    expect(statuses).to.include(429);
  });
});
