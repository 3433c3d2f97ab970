import { expect } from 'chai';
import { eventually } from '../../support/eventually.ts';
import { startProvider } from '../../support/identity-provider.ts';
import { use } from '../../support/use.ts';
import { createWorld } from '../../support/world.ts';
import { expectProblem } from '../people/people-world.ts';
import { newPerson, signInWorld } from './provider-world.ts';

describe('a provider that is silent', () => {
  const provider = use(startProvider);
  const other = use(startProvider);
  const world = use(() =>
    createWorld({
      TRUSTED_PROVIDERS: `${provider.trusted},${other.trusted}`,
      CONTROL_CONNECTIONS: '2',
    }),
  );

  it('nobody waits for it but those who sign in by it: neither logins, nor requests, nor sign-ins by another provider', async () => {
    const [people, others] = [signInWorld(world, provider), signInWorld(world, other)];
    const [silent, living] = [newPerson(), newPerson()];
    await people.configure(world.acme);
    await people.link(await world.login(world.acme), silent);
    await others.configure(world.acme, { Name: 'Others' });
    await others.configure(world.globex);
    await others.link(await world.login(world.globex), living);
    const { url } = await world.startAnotherServer(); // it has no keys yet

    /**
     * Lets 20 sign-ins wait for the provider, and others go on meanwhile.
     * @returns true if all others were answered before any of those who wait
     */
    const isNobodyDelayed = async (): Promise<boolean> => {
      provider.answer(undefined);
      const tokens = await Promise.all(
        Array.from({ length: 20 }, () => provider.sign(provider.claims(silent.sub))),
      );
      provider.answer('silent');
      world.clock.offsetSeconds += 11; // a provider that is away is asked again after ten seconds
      let answered = 0;
      const waiting = tokens.map(async token => {
        const answer = await people.exchange(token, world.acme, url);
        answered++;
        return answer;
      });
      await eventually(() => provider.waiting === 1);

      const client = (await world.login(world.globex)).at(url);
      const login = await world.anonymous
        .at(url)
        .post('/api/v1/auth/login', world.acme.admin, { 'X-Tenant': world.acme.guid });
      const read = await client.get('/api/v1/Entities');
      const signIn = await others.exchange(await other.signIn(living), world.globex, url);
      const answeredMeanwhile = answered;

      expect(login.status).to.equal(200);
      expect(read.status).to.equal(200);
      expect(signIn.status).to.equal(200);
      for (const refused of await Promise.all(waiting)) expectProblem(refused, 503, 'unavailable');
      return answeredMeanwhile === 0;
    };

    // A busy machine may be slower than the five seconds of a fetch: then it is tried again.
    await eventually(isNobodyDelayed);
  });
});
