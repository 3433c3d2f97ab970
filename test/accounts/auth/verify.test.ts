import { expect } from 'chai';
import { permissions } from '../../../src/control/permissions.ts';
import type { ApiResponse, Client } from '../../support/client.ts';
import { controlSql, createWorld, type World } from '../../support/world.ts';
import { expectProblem } from '../people/people-world.ts';
import { claimsOf } from './forge.ts';

const path = '/api/v1/auth/verify';
const programs = '/api/v1/Programs';

describe('the proof of a password of the last five minutes', () => {
  let world: World;
  let admin: Client;

  beforeEach(async () => {
    world = await createWorld({ RATE_LIMIT_LOGIN: '8/15m', RATE_LIMIT_FAILURES: '20/24h' });
    admin = await world.login(world.acme);
  });
  afterEach(() => world.close());

  const verify = (as: Client, password = world.acme.admin.password): Promise<ApiResponse> =>
    as.post(path, { password });
  const addProgram = async (): Promise<number> =>
    (await admin.post(programs, { Name: 'Till', Role: 'Administrator', Scope: 'All' })).body.Id;
  const makeKey = (id: number, as = admin): Promise<ApiResponse> =>
    as.post(`${programs}/${id}/keys`, {});
  const sessionOf = (client: Client) => claimsOf(client.tokens?.accessToken ?? '').sid;
  /** Lets time pass for a session, as if its login and its proofs were so much older. */
  const age = (client: Client, minutes: number) =>
    controlSql(
      world,
      `update sessions set created_at = created_at - ? * interval '1 minute',
              verified_at = verified_at - ? * interval '1 minute' where id = ?`,
      [minutes, minutes, sessionOf(client)],
    );

  it('a key of a program is made within five minutes of a login or a verification, and otherwise refused', async () => {
    const id = await addProgram();
    expect((await makeKey(id)).status).to.equal(201);

    await age(admin, 6);
    expectProblem(await makeKey(id), 403, 'verification_required');

    const verified = await verify(admin);
    expect(verified.status).to.equal(200);
    const seconds = (Date.parse(verified.body.verifiedUntil) - Date.now()) / 1_000;
    expect(seconds).to.be.within(200, 301);
    expect((await makeKey(id)).status).to.equal(201);

    await age(admin, 6);
    expectProblem(await makeKey(id), 403, 'verification_required');
  });

  it('a refresh, and the proof of another session of the person, are no proof', async () => {
    const id = await addProgram();
    await age(admin, 6);
    const second = await world.login(world.acme);
    expect((await verify(second)).status).to.equal(200);
    const refreshed = await world.anonymous.post(
      '/api/v1/auth/refresh',
      { refreshToken: admin.tokens?.refreshToken },
      { 'X-Tenant': world.acme.guid },
    );

    expectProblem(await makeKey(id), 403, 'verification_required');
    const token = world.anonymous.withToken(refreshed.body.accessToken);
    expectProblem(await makeKey(id, token), 403, 'verification_required');
    expect((await makeKey(id, second)).status).to.equal(201);
  });

  it('a wrong password proves nothing, ends no session, and counts as a failed login from the same address', async () => {
    const id = await addProgram();
    await age(admin, 6);

    for (let i = 0; i < 7; i++) {
      expectProblem(await verify(admin, 'wrong'), 401, 'invalid_credentials');
    }
    const limited = await verify(admin);

    expectProblem(limited, 429, 'rate_limited');
    expect(limited.headers.get('ratelimit-policy')).to.include('"Login"');
    expectProblem(
      await world.anonymous.post('/api/v1/auth/login', world.acme.admin, {
        'X-Tenant': world.acme.guid,
      }),
      429,
      'rate_limited',
    );
    expectProblem(await makeKey(id), 403, 'verification_required');
    expect((await admin.get('/api/v1/auth/me')).status).to.equal(200);
    expect(world.logs.filter(line => line.includes('"login_failed"'))).to.have.length(7);
    expect(
      (await world.login(world.globex)).tokens,
      'the same address, in another tenant',
    ).not.to.equal(undefined);
  });

  it('a program proves nothing, so it makes no key, whatever its rights', async () => {
    const id = await addProgram();
    const { body } = await makeKey(id);
    const program = world.anonymous.withToken(body.Key);

    expectProblem(await makeKey(id, program), 403, 'verification_required');
    expectProblem(await verify(program), 400, 'wrong_state');
    expect((await program.get(`${programs}/${id}/keys`)).body).to.have.length(1);
    expect((await program.delete(`${programs}/${id}/keys/${body.Id}`)).status).to.equal(204);
  });

  it('a person without the rights gets 403 for them, and an unknown program 404, with or without a proof', async () => {
    const id = await addProgram();
    const lacking = await world.loginAs(world.acme, { permissions: ['users.manage'] });
    const full = await world.loginAs(world.acme, { permissions: [...permissions] });
    for (const client of [lacking, full]) await age(client, 6);

    expectProblem(await makeKey(id, lacking), 403, 'forbidden');
    expectProblem(await makeKey(987_654, full), 404, 'not_found');
    expectProblem(await makeKey(id, full), 403, 'verification_required');
  });
});
