import { expect } from 'chai';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { useLogin, useTwoProcesses, useWorld } from '../../support/world.ts';
import { expectProblem } from '../people/people-world.ts';
import { factorWorld } from './factors/factor-world.ts';

const path = '/api/v1/auth/password';
const newPassword = 'four quiet words of mine';

describe('the change of the own password', () => {
  const world = useWorld({ RATE_LIMIT_ACCOUNT: '1000/15m', RATE_LIMIT_LOGIN: '1000/15m' });
  const admin = useLogin(world, 'acme');
  const people = factorWorld(world);
  const urls = useTwoProcesses(world);

  it('sets the new password, keeps this session, and ends the others in each process', async () => {
    const { person, client } = await people.add(world.acme);
    const other = world.anonymous.withToken((await people.login(person)).body.accessToken);

    expect((await client.put(path, { newPassword })).status).to.equal(204);

    for (const url of urls) {
      await eventually(
        async () => (await other.at(url).get('/api/v1/auth/me')).status === 401,
        announcedMs,
      );
      expect((await client.at(url).get('/api/v1/auth/me')).status).to.equal(200);
    }
    expectProblem(await people.login(person), 401, 'invalid_credentials');
    expect((await people.login({ ...person, password: newPassword })).status).to.equal(200);
  });

  it('needs a proof of the present password of the last five minutes, and of a second factor if there is one', async () => {
    const { person, client } = await people.add(world.acme);
    await people.age(client, 6);
    expectProblem(await client.put(path, { newPassword }), 403, 'verification_required');

    const proof = { password: person.password };
    expect((await client.post('/api/v1/auth/verify', proof)).status).to.equal(200);
    const { secret } = await people.addTotp(client);
    const { body } = await people.login(person);
    expect(body.code).to.equal('second_factor_required');
    await people.age(client, 6);
    expectProblem(await client.put(path, { newPassword }), 403, 'verification_required');
    const both = { ...proof, code: people.code(secret) };
    expect((await client.post('/api/v1/auth/verify', both)).status).to.equal(200);
    expect((await client.put(path, { newPassword })).status).to.equal(204);
  });

  it('accepts eight characters beside a second factor, and else asks for fifteen and for no words of the account', async () => {
    const plain = await people.add(world.acme);
    const withFactor = await people.add(world.acme);
    await people.addTotp(withFactor.client);
    const short = { newPassword: 'qo9-tuZ4' };

    const refused = await plain.client.put(path, short);
    expectProblem(refused, 400, 'validation_failed');
    expect(refused.body.errorCodes.newPassword[0].code).to.equal('too_short');
    const words = await plain.client.put(path, { newPassword: 'backoffice-2026-backoffice' });
    expect(words.body.errorCodes.newPassword[0].code).to.equal('own_words');
    expect((await people.login(plain.person)).status, 'the former password').to.equal(200);
    expect((await withFactor.client.put(path, short)).status).to.equal(204);
  });

  it('ends a login that waits for its second factor', async () => {
    const { person, client } = await people.add(world.acme);
    const { recoveryCodes } = await people.addTotp(client);
    const { challenge } = (await people.login(person)).body;

    expect((await client.put(path, { newPassword })).status).to.equal(204);

    const late = await people.verify(person, { challenge, recoveryCode: recoveryCodes[0] });
    expectProblem(late, 401, 'invalid_challenge');
  });

  it('is nothing for a program', async () => {
    const { body: program } = await admin.post('/api/v1/Programs', {
      Name: 'Till',
      Role: 'Member',
      Scope: 'All',
    });
    const { body } = await admin.post(`/api/v1/Programs/${program.Id}/keys`, {});

    const refused = await world.anonymous.withToken(body.Key).put(path, { newPassword });

    expectProblem(refused, 400, 'wrong_state');
  });
});
