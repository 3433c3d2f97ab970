import { expect } from 'chai';
import * as openid from 'openid-client';
import { startProvider } from '../../support/identity-provider.ts';
import { use } from '../../support/use.ts';
import { createWorld } from '../../support/world.ts';
import { addSampleUser } from '../auth/sample-users.ts';
import { newPerson, signInWorld } from './provider-world.ts';

describe('sign-in with clients that others have written', () => {
  const provider = use(startProvider);
  const world = use(() => createWorld({ TRUSTED_PROVIDERS: provider.trusted }));

  it('openid-client signs a person in with PKCE and a nonce, and its ID token is exchanged', async () => {
    const people = signInWorld(world, provider);
    const user = await addSampleUser(world, world.acme);
    const person = newPerson({ email: 'ada@example.com' });
    await people.configure(world.acme);
    await people.link(await world.login(world.acme, user), person);
    const [clientId] = provider.clientIds;
    const [verifier, nonce] = [openid.randomPKCECodeVerifier(), openid.randomNonce()];
    const state = openid.randomState();

    const configuration = await openid.discovery(
      new URL(provider.issuer),
      clientId,
      undefined,
      openid.None(),
    );
    const url = openid.buildAuthorizationUrl(configuration, {
      redirect_uri: provider.callback,
      scope: 'openid email',
      code_challenge: await openid.calculatePKCECodeChallenge(verifier),
      code_challenge_method: 'S256',
      nonce,
      state,
    });
    const end = await provider.browse(url, person);
    const tokens = await openid.authorizationCodeGrant(configuration, end, {
      pkceCodeVerifier: verifier,
      expectedNonce: nonce,
      expectedState: state,
    });
    const { status, body } = await people.exchange(tokens.id_token ?? '');

    expect(status, JSON.stringify(body)).to.equal(200);
    const { body: me } = await world.anonymous.withToken(body.accessToken).get('/api/v1/auth/me');
    expect(me.userGuid).to.equal(user.guid);
    expect(me.tenantGuid).to.equal(world.acme.guid);
  });
});
