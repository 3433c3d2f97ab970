import { expect } from 'chai';
import { createBackOffice, ProblemError } from '../../clients/typescript/src/back-office.ts';
import { factorWorld } from '../accounts/auth/factors/factor-world.ts';
import { newPerson, signInWorld } from '../accounts/providers/provider-world.ts';
import { startProvider } from '../support/identity-provider.ts';
import { use } from '../support/use.ts';
import { createWorld } from '../support/world.ts';

describe('TypeScript client with the ID token of a provider', () => {
  const provider = use(startProvider);
  const world = use(() => createWorld({ TRUSTED_PROVIDERS: provider.trusted }));
  const signIns = signInWorld(world, provider);

  before(async () => {
    await signIns.configure(world.acme);
    await signIns.configure(world.globex);
  });

  /** Adds a person of acme who has linked an account at the provider. */
  const addLinked = async () => {
    const added = await factorWorld(world).add(world.acme);
    const account = newPerson();
    await signIns.link(added.client, account);
    return { ...added, account };
  };

  it('a person logs in with an ID token, refreshes and logs out, and a token that was used is refused', async () => {
    const { account } = await addLinked();
    const office = createBackOffice({ url: world.url, tenant: world.acme.guid });
    const idToken = await provider.signIn(account);

    await office.loginWithIdToken(idToken);

    expect(office.hasSession).to.equal(true);
    expect((await office.GET('/api/v1/auth/me')).data?.tenantGuid).to.equal(world.acme.guid);
    world.clock.offsetSeconds += 16 * 60;
    expect((await office.GET('/api/v1/auth/me')).response.status, 'refreshed').to.equal(200);
    world.clock.offsetSeconds -= 16 * 60;
    expect(await office.logout()).to.equal(true);

    const refused = await office.loginWithIdToken(idToken).catch(error => error);
    expect(refused).to.be.instanceOf(ProblemError);
    expect(refused.problem.code).to.equal('invalid_id_token');
    expect(office.hasSession).to.equal(false);
  });

  it('a login with an ID token that needs a second factor is completed by a code', async () => {
    const people = factorWorld(world);
    const { account, client } = await addLinked();
    const { secret } = await people.addTotp(client);
    const office = createBackOffice({ url: world.url, tenant: world.acme.guid });

    const refused = await office
      .loginWithIdToken(await provider.signIn(account))
      .catch(error => error);
    expect(refused.problem.code).to.equal('second_factor_required');
    await office.verifyLogin(refused.problem.challenge, { code: people.code(secret) });

    expect((await office.GET('/api/v1/auth/me')).response.status).to.equal(200);
  });

  it('a client of another tenant, and one with a key, do not log in with it', async () => {
    const { account } = await addLinked();
    const idToken = await provider.signIn(account);
    const other = createBackOffice({ url: world.url, tenant: world.globex.guid });

    const refused = await other.loginWithIdToken(idToken).catch(error => error);

    expect(refused.problem.code).to.equal('invalid_id_token');
    const keyed = createBackOffice({ url: world.url, key: 'sbk_key' });
    expect(await keyed.loginWithIdToken(idToken).catch(error => error)).to.be.instanceOf(Error);
  });
});
