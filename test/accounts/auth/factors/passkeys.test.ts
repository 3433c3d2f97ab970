import { randomUUID } from 'node:crypto';
import { expect } from 'chai';
import type { ApiResponse } from '../../../support/client.ts';
import { eventually } from '../../../support/eventually.ts';
import { runCommand } from '../../../support/run-command.ts';
import { controlSql, type TestTenant, useWorld } from '../../../support/world.ts';
import { expectProblem } from '../../people/people-world.ts';
import { claimsOf } from '../forge.ts';
import { factorsPath, factorWorld, type Person } from './factor-world.ts';
import { page, passkeysPath, passkeyWorld } from './passkey-world.ts';
import { SoftwareAuthenticator } from './software-authenticator.ts';

const secondPage = 'https://shop.example.net';

const accepted = (responses: readonly ApiResponse[]): number =>
  responses.filter(({ status }) => status === 200 || status === 201).length;

describe('a passkey', () => {
  const world = useWorld({
    RATE_LIMIT_LOGIN: '10000/15m',
    CORS_ORIGINS: 'https://cors.example.com',
  });
  const people = factorWorld(world);
  const { loginOptions, loginAlone, optionsOf, addPasskey, setPages } = passkeyWorld(world);
  let urls: string[];

  before(async () => {
    urls = [world.url, (await world.startAnotherServer()).url];
    await setPages(urls, secondPage);
  });

  const addPerson = async (tenant = world.acme) => {
    const added = await people.add(tenant);
    return { ...added, ...(await addPasskey(added.client)) };
  };
  /** The refusal of a login with the right password. */
  const refusal = async (person: Person, url?: string) => {
    const refused = await people.login(person, url);
    expectProblem(refused, 401, 'second_factor_required');
    return refused.body;
  };

  it('completes a login beside the password in each process, whether its user was recognised or not', async () => {
    const { person, client } = await people.add(world.acme);
    const authenticator = new SoftwareAuthenticator();
    const options = await optionsOf(client);
    expect(options.rp).to.deep.equal({ id: 'app.example.com', name: 'acme Ltd' });
    expect(options.attestation).to.equal('none');
    const passkey = authenticator.create(options, { isVerified: false });
    const added = await client.post(passkeysPath, { name: 'My laptop', passkey });
    expect(added.status, JSON.stringify(added.body)).to.equal(201);
    expect(added.body.recoveryCodes).to.have.length(10);

    for (const [i, url] of urls.entries()) {
      const { challenge, methods, passkey: wanted } = await refusal(person, url);
      expect(methods).to.deep.equal(['passkey', 'recoveryCode']);
      expect(wanted.userVerification).to.equal('preferred');
      expect(wanted.allowCredentials).to.deep.equal([
        { type: 'public-key', id: authenticator.credentialId, transports: ['internal', 'hybrid'] },
      ]);
      const proof = authenticator.get(wanted, { isVerified: i === 0 });
      const response = await people.verify(person, { challenge, passkey: proof }, url);
      expect(response.status, JSON.stringify(response.body)).to.equal(200);
      expect(claimsOf(response.body.accessToken).amr).to.deep.equal(['pwd', 'pop', 'mfa']);
      const listed = await world.anonymous.withToken(response.body.accessToken).get(factorsPath);
      expect(listed.body).to.have.length(1);
      expect(listed.body[0]).to.include({ kind: 'passkey', name: 'My laptop' });
      expect(listed.body[0].lastUsedAt).to.be.a('string');
    }
  });

  it('stands beside an app, each of which completes a login', async () => {
    const { person, client } = await people.add(world.acme);
    const { secret } = await people.addTotp(client);
    const { authenticator, recoveryCodes } = await addPasskey(client);
    expect(recoveryCodes, 'of the second factor').to.deep.equal([]);

    const first = await refusal(person);
    expect(first.methods).to.deep.equal(['totp', 'passkey', 'recoveryCode']);
    const proof = { challenge: first.challenge, passkey: authenticator.get(first.passkey) };
    const both = await people.verify(person, { ...proof, code: people.code(secret) });
    expectProblem(both, 400, 'validation_failed');
    expect((await people.verify(person, proof)).status).to.equal(200);
    const { challenge } = await refusal(person);
    const byApp = await people.verify(person, { challenge, code: people.code(secret) });
    expect(byApp.status).to.equal(200);
  });

  it('of another person, of the same tenant or not, completes no login', async () => {
    const { person } = await addPerson();

    for (const tenant of [world.acme, world.globex]) {
      const { authenticator } = await addPerson(tenant);
      const { challenge, passkey: wanted } = await refusal(person);
      const passkey = authenticator.get(wanted);
      expectProblem(await people.verify(person, { challenge, passkey }), 401, 'invalid_passkey');
      const elsewhere = await people.verify(
        { ...person, tenant: world.globex },
        {
          challenge,
          passkey,
        },
      );
      expectProblem(elsewhere, 401, 'invalid_challenge');
    }
  });

  it('is neither made nor used on a page that is none of its tenant, nor of another host than its own', async () => {
    const { person, client, authenticator } = await addPerson();
    const strange = [
      { origin: 'https://app.example.com.evil.example' },
      { origin: 'https://example.com' },
      { origin: 'https://sub.app.example.com' },
      { origin: 'http://app.example.com' },
      { origin: 'https://cors.example.com' },
      { origin: secondPage },
      { rpId: 'example.com' },
      { origin: 'https://cors.example.com', rpId: 'cors.example.com' },
      { origin: secondPage, rpId: 'shop.example.net' },
    ];

    for (const ceremony of strange) {
      const { challenge, passkey: wanted } = await refusal(person);
      const passkey = authenticator.get(wanted, ceremony);
      const used = await people.verify(person, { challenge, passkey });
      expectProblem(used, 401, 'invalid_passkey');
    }
    for (const ceremony of strange.slice(0, -1)) {
      const made = new SoftwareAuthenticator().create(await optionsOf(client), ceremony);
      const added = await client.post(passkeysPath, { passkey: made });
      expectProblem(added, 401, 'invalid_passkey');
    }
    const asked = await optionsOf(client, 'https://cors.example.com');
    expect(asked.rp.id, 'of another page').to.equal('app.example.com');
  });

  it('of a second page is offered on that page alone', async () => {
    const { person, client } = await people.add(world.acme);
    const { authenticator } = await addPasskey(client, secondPage);
    const { email, password } = person;
    const header = { ...people.header(world.acme), Origin: secondPage };

    expect((await refusal(person)).methods, 'on the first page').to.deep.equal(['recoveryCode']);
    const refused = await world.anonymous.post('/api/v1/auth/login', { email, password }, header);
    expect(refused.body.methods).to.deep.equal(['passkey', 'recoveryCode']);
    const passkey = authenticator.get(refused.body.passkey);
    const body = { challenge: refused.body.challenge, passkey };
    expect((await people.verify(person, body)).status).to.equal(200);
  });

  it('whose counter does not grow is refused, and one that never counts is not', async () => {
    const { person, authenticator } = await addPerson();
    const login = async (count: number, by = authenticator, who = person) => {
      const { challenge, passkey: wanted } = await refusal(who);
      return people.verify(who, { challenge, passkey: by.get(wanted, { count }) });
    };

    expect((await login(7)).status).to.equal(200);
    for (const count of [7, 6, 1]) expectProblem(await login(count), 401, 'invalid_passkey');
    expect((await login(8)).status).to.equal(200);

    const other = await people.add(world.acme);
    const still = new SoftwareAuthenticator();
    const passkey = still.create(await optionsOf(other.client), { count: 0 });
    expect((await other.client.post(passkeysPath, { passkey })).status).to.equal(201);
    for (const _ of [1, 2]) expect((await login(0, still, other.person)).status).to.equal(200);
  });

  it('completes a login once with one signature, at two processes at once too', async () => {
    const { person, authenticator } = await addPerson();

    for (const count of [0, 9]) {
      const { challenge, passkey: wanted } = await refusal(person);
      const body = { challenge, passkey: authenticator.get(wanted, { count }) };
      const responses = await Promise.all(
        [0, 1, 0, 1].map(i => people.verify(person, body, urls[i])),
      );
      expect(accepted(responses), `counter ${count}`).to.equal(1);
      const replayed = await people.verify(person, {
        ...body,
        challenge: (await refusal(person)).challenge,
      });
      expectProblem(replayed, 401, 'invalid_passkey');
    }
  });

  it('is added by a challenge once, at two processes at once too, in the session and the time of the challenge', async () => {
    const { client } = await people.add(world.acme);
    const options = await optionsOf(client);
    const made = [0, 1, 2, 3].map(() => new SoftwareAuthenticator().create(options));

    const responses = await Promise.all(
      made.map((passkey, i) => client.at(urls[i % 2] ?? '').post(passkeysPath, { passkey })),
    );
    expect(accepted(responses)).to.equal(1);
    for (const response of responses.filter(({ status }) => status !== 201)) {
      expectProblem(response, 401, 'invalid_passkey');
    }

    const ofOthers = [
      (await people.add(world.acme)).client,
      (await people.add(world.globex)).client,
    ];
    for (const other of ofOthers) {
      const passkey = new SoftwareAuthenticator().create(await optionsOf(client));
      expectProblem(await other.post(passkeysPath, { passkey }), 401, 'invalid_passkey');
    }
    const ofLogin = (await loginOptions(world.acme)).body.challenge;
    for (const challenge of [ofLogin, 'AAAA', '', (await optionsOf(client)).challenge.slice(4)]) {
      const passkey = new SoftwareAuthenticator().create({ ...options, challenge });
      expectProblem(await client.post(passkeysPath, { passkey }), 401, 'invalid_passkey');
    }

    const late = new SoftwareAuthenticator().create(await optionsOf(client));
    world.clock.offsetSeconds += 301;
    expectProblem(await client.post(passkeysPath, { passkey: late }), 401, 'invalid_passkey');
  });

  it('is added whatever its attestation says, which nobody reads', async () => {
    const { client } = await people.add(world.acme);
    const statement = new Map<string, number | Uint8Array>([
      ['alg', -7],
      ['sig', Buffer.from('no signature')],
    ]);
    const passkey = new SoftwareAuthenticator().create(await optionsOf(client), {
      attestation: { format: 'packed', statement },
    });

    const added = await client.post(passkeysPath, { passkey });

    expect(added.status, JSON.stringify(added.body)).to.equal(201);
  });

  it('is added and removed with a proof of the last five minutes, which a passkey gives, too', async () => {
    const { person, client, authenticator, id } = await addPerson();
    const verify = (body: object) =>
      client.post('/api/v1/auth/verify', { password: person.password, ...body });

    const made = new SoftwareAuthenticator().create(await optionsOf(client));

    await people.age(client, 6);
    const options = await client.post(`${passkeysPath}/options`, {});
    expectProblem(options, 403, 'verification_required');
    const unproved = await client.post(passkeysPath, { passkey: made });
    expectProblem(unproved, 403, 'verification_required');

    const wanted = await verify({});
    expectProblem(wanted, 401, 'second_factor_required');
    expect(wanted.body.methods).to.deep.equal(['passkey', 'recoveryCode']);
    const { challenge } = wanted.body;
    const passkey = authenticator.get(wanted.body.passkey);
    expectProblem(await verify({ passkey }), 401, 'invalid_challenge');
    const stranger = await addPerson();
    const ofOther = (await refusal(stranger.person)).challenge;
    expectProblem(await verify({ passkey, challenge: ofOther }), 401, 'invalid_challenge');
    expectProblem(await client.delete(`${factorsPath}/${id}`), 403, 'verification_required');
    expect((await verify({ passkey, challenge })).status).to.equal(200);
    expectProblem(await verify({ passkey, challenge }), 401, 'invalid_challenge');
    expect((await client.post(passkeysPath, { passkey: made })).status).to.equal(201);
    const removed = await client.delete(`${factorsPath}/${id}`);
    expect(removed.status).to.equal(204);
    const { challenge: next, passkey: ofMade } = await refusal(person);
    const gone = authenticator.get({ ...ofMade, rpId: 'app.example.com' });
    const late = await people.verify(person, { challenge: next, passkey: gone });
    expectProblem(late, 401, 'invalid_passkey');
  });

  it('that is the last one is removed with the recovery codes', async () => {
    const { person, client, id } = await addPerson();

    expect((await client.delete(`${factorsPath}/${id}`)).status).to.equal(204);
    expect((await people.login(person)).status, 'without a factor').to.equal(200);
  });

  it('is the eleventh factor of nobody, and none of two people', async () => {
    const { client } = await people.add(world.acme);
    const first = await addPasskey(client);
    const options = await optionsOf(client);
    const excluded = options.excludeCredentials.map(({ id }: { id: string }) => id);
    expect(excluded).to.deep.equal([first.authenticator.credentialId]);

    for (let i = 1; i < 10; i++) await addPasskey(client);
    expectProblem(await client.post(`${passkeysPath}/options`, {}), 400, 'limit_reached');

    const other = await people.add(world.globex);
    const copied = first.authenticator.create(await optionsOf(other.client));
    const added = await other.client.post(passkeysPath, { passkey: copied });
    expectProblem(added, 401, 'invalid_passkey');
  });

  it('is not added while a build runs that does not know it', async () => {
    const { client } = await people.add(world.acme);
    const former = randomUUID();
    await controlSql(
      world,
      `insert into processes (id, kind, host, pid, build, tenant_head, control_head, seen_at)
       values (?, 'service', 'elsewhere', 17, '0.2.0', '0001-first-schema', '0004-second-factors', now() + interval '50 seconds')`,
      [former],
    );

    const refused = await client.post(`${passkeysPath}/options`, {});
    await controlSql(world, 'delete from processes where id = ?', [former]);

    expectProblem(refused, 503, 'migration_pending');
  });

  it('has an audit entry without its key, as have its rows in no log', async () => {
    const { client, authenticator, userId } = await addPerson();
    const admin = await world.login(world.acme);

    const { body } = await admin.get('/api/v1/AuditLog?resource=Factor&limit=1000');
    const entries = body.filter(({ UserId }: { UserId: number }) => UserId === userId);

    expect(entries).to.have.length(1);
    expect(entries[0].After).to.have.all.keys(
      'Id',
      'UserId',
      'Kind',
      'Name',
      'CreatedAt',
      'ConfirmedAt',
    );
    expect((await client.get(factorsPath)).body[0]).to.have.all.keys(
      'id',
      'kind',
      'name',
      'confirmedAt',
      'lastUsedAt',
      'heldAt',
    );
    expect(JSON.stringify(world.logs)).not.to.include(authenticator.credentialId);
  });

  describe('as the whole login', () => {
    it('logs in without address and password, if its user was recognised', async () => {
      const { authenticator } = await addPerson();

      for (const url of urls) {
        const options = await loginOptions(world.acme, url);
        expect(options.body).to.deep.include({
          rpId: 'app.example.com',
          userVerification: 'required',
          allowCredentials: [],
        });
        const passkey = authenticator.get(options.body);
        const response = await loginAlone(world.acme, passkey, url);
        expect(response.status, JSON.stringify(response.body)).to.equal(200);
        const { accessToken, refreshToken } = response.body;
        expect(claimsOf(accessToken).amr).to.deep.equal(['pop', 'user', 'mfa']);
        const client = world.anonymous.withToken(accessToken);
        expect((await client.get('/api/v1/auth/me')).status).to.equal(200);
        const header = people.header(world.acme);
        const refreshed = await world.anonymous.post(
          '/api/v1/auth/refresh',
          { refreshToken },
          header,
        );
        expect(claimsOf(refreshed.body.accessToken).amr).to.deep.equal(['pop', 'user', 'mfa']);
      }

      const { body } = await loginOptions(world.acme);
      const unverified = authenticator.get(body, { isVerified: false });
      expectProblem(await loginAlone(world.acme, unverified), 401, 'invalid_passkey');
    });

    it('removes the last factor once the password was proved to be long enough without one', async () => {
      const { person, authenticator, id } = await addPerson();
      const alone = authenticator.get((await loginOptions(world.acme)).body);
      const { accessToken } = (await loginAlone(world.acme, alone)).body;
      const client = world.anonymous.withToken(accessToken);
      const { password } = person;

      expectProblem(await client.delete(`${factorsPath}/${id}`), 400, 'wrong_state');
      const wanted = (await client.post('/api/v1/auth/verify', { password })).body;
      const passkey = authenticator.get(wanted.passkey);
      const body = { password, challenge: wanted.challenge, passkey };
      expect((await client.post('/api/v1/auth/verify', body)).status).to.equal(200);
      expect((await client.delete(`${factorsPath}/${id}`)).status).to.equal(204);
    });

    it('takes a challenge once, at two processes at once too, within its time', async () => {
      const { authenticator } = await addPerson();
      const { authenticator: other } = await addPerson();

      for (const count of [0, 5]) {
        const { body } = await loginOptions(world.acme);
        const passkey = authenticator.get(body, { count });
        const responses = await Promise.all(
          [0, 1, 0, 1].map(i => loginAlone(world.acme, passkey, urls[i])),
        );
        expect(accepted(responses), `counter ${count}`).to.equal(1);
        const again = await loginAlone(world.acme, other.get(body));
        expectProblem(again, 401, 'invalid_passkey');
      }

      const late = authenticator.get((await loginOptions(world.acme)).body);
      world.clock.offsetSeconds += 301;
      expectProblem(await loginAlone(world.acme, late), 401, 'invalid_passkey');
    });

    it('is refused in another tenant, on another page, with a challenge of another kind, and of a disabled person', async () => {
      const { person, client, authenticator, userId } = await addPerson();
      const stranger = await addPerson(world.globex);
      const options = async (tenant = world.acme) => (await loginOptions(tenant)).body;
      const { passkey: ofLogin } = await refusal(person);
      const ofAdding = { ...(await options()), challenge: (await optionsOf(client)).challenge };
      const sent: [TestTenant, unknown][] = [
        [world.globex, authenticator.get(await options(world.globex))],
        [world.globex, authenticator.get(await options())],
        [world.acme, authenticator.get(await options(world.globex))],
        [world.acme, stranger.authenticator.get(await options())],
        [world.acme, authenticator.get(await options(), { origin: secondPage })],
        [world.acme, authenticator.get(ofLogin)],
        [world.acme, authenticator.get(ofAdding)],
      ];

      for (const [tenant, passkey] of sent) {
        expectProblem(await loginAlone(tenant, passkey), 401, 'invalid_passkey');
      }
      const right = authenticator.get(await options());
      const renamed = { ...right, response: { ...right.response, userHandle: 'AAAA' } };
      expectProblem(await loginAlone(world.acme, renamed), 401, 'invalid_passkey');
      const forged = { ...right, response: { ...right.response, signature: 'MEUCIQ' } };
      expectProblem(await loginAlone(world.acme, forged), 401, 'invalid_passkey');
      expect((await loginAlone(world.acme, right)).status).to.equal(200);

      await controlSql(world, 'update users set disabled_at = now() where id = ?', [userId]);
      const disabled = authenticator.get(await options());
      expectProblem(await loginAlone(world.acme, disabled), 401, 'invalid_passkey');
    });
  });

  describe('that a role requires', () => {
    const setupPath = '/api/v1/auth/login/setup/passkey';
    /** A person whose role requires a second factor, and who has none. */
    const addRefused = async () => {
      const added = await people.add(world.acme);
      const require = 'update roles set requires_second_factor = true where id = ?';
      await controlSql(world, require, [added.roleId]);
      const refused = await people.login(added.person);
      expectProblem(refused, 403, 'second_factor_setup_required');
      return { ...added, setupToken: refused.body.setupToken as string };
    };
    const send = (path: string, body: object, { tenant = world.acme, url = world.url } = {}) =>
      world.anonymous.at(url).post(path, body, { ...people.header(tenant), Origin: page });
    const setupOptions = async (setupToken: string) => {
      const { status, body } = await send(`${setupPath}/options`, { setupToken });
      expect(status, JSON.stringify(body)).to.equal(200);
      return body;
    };

    it('is set up by the token of the refused login, which it completes once, at two processes too', async () => {
      const { person, setupToken, userId } = await addRefused();
      const authenticator = new SoftwareAuthenticator();
      const passkey = authenticator.create(await setupOptions(setupToken));
      const body = { setupToken, name: 'My laptop', passkey };

      const responses = await Promise.all(
        [0, 1, 0, 1].map(i => send(setupPath, body, { url: urls[i] ?? '' })),
      );

      expect(accepted(responses)).to.equal(1);
      const done = responses.find(({ status }) => status === 200);
      expect(done?.body.recoveryCodes).to.have.length(10);
      expect(claimsOf(done?.body.accessToken).amr).to.deep.equal(['pwd', 'pop', 'mfa']);
      const client = world.anonymous.withToken(done?.body.accessToken);
      const [factor] = (await client.get(factorsPath)).body;
      expect(factor).to.include({ kind: 'passkey', name: 'My laptop' });
      const own = 'select added_from from factors where user_id = ?';
      expect(await controlSql(world, own, [userId])).to.deep.equal([{ added_from: '127.0.0.1' }]);

      const { challenge, passkey: wanted } = await refusal(person);
      const proof = { challenge, passkey: authenticator.get(wanted) };
      expect((await people.verify(person, proof)).status).to.equal(200);
      const again = await send(`${setupPath}/options`, { setupToken });
      expectProblem(again, 401, 'invalid_challenge');
    });

    it('is set up by no other token or challenge, on no other page, with five tries, and beside no other factor', async () => {
      const { person, setupToken } = await addRefused();
      const other = await addRefused();
      const options = await setupOptions(setupToken);
      const made = (of: typeof options, ceremony = {}) =>
        new SoftwareAuthenticator().create(of, ceremony);
      const withTotp = await people.add(world.acme);
      await people.addTotp(withTotp.client);
      const { challenge } = (await people.login(withTotp.person)).body;
      const elsewhere = { tenant: world.globex };
      const strange: [string, object][] = [
        [challenge, {}],
        ['sbc_nothing', {}],
        [setupToken, elsewhere],
      ];

      for (const [token, where] of strange) {
        const sent = { setupToken: token, passkey: made(options) };
        expectProblem(await send(setupPath, sent, where), 401, 'invalid_challenge');
        const asked = await send(`${setupPath}/options`, { setupToken: token }, where);
        expectProblem(asked, 401, 'invalid_challenge');
      }
      const wrong = [
        made(await setupOptions(other.setupToken)),
        made(options, { origin: 'https://cors.example.com' }),
        made(options, { origin: secondPage }),
        made({ ...options, challenge: setupToken }),
        made({ ...options, challenge: (await loginOptions(world.acme)).body.challenge }),
      ];
      for (const passkey of wrong) {
        const refused = await send(setupPath, { setupToken, passkey });
        expectProblem(refused, 401, 'invalid_passkey');
      }
      const late = await send(setupPath, { setupToken, passkey: made(options) });
      expectProblem(late, 401, 'invalid_challenge');

      const next = (await people.login(person)).body.setupToken;
      const second = (await people.login(person)).body.setupToken;
      const passkey = made(await setupOptions(next));
      const begun = await setupOptions(second);
      expect((await send(setupPath, { setupToken: next, passkey })).status).to.equal(200);
      const beside = await send(setupPath, { setupToken: second, passkey: made(begun) });
      expectProblem(beside, 401, 'invalid_challenge');
    });
  });

  describe('and its pages', () => {
    const edit = (...values: string[]) =>
      runCommand('scripts/tenant.ts', ['edit', 'globex', ...values], world.environment);

    it('are set by the operator, who learns how many passkeys do not work any more', async () => {
      const { client, authenticator } = await addPerson(world.globex);
      const another = ['--passkey-origin', secondPage, '--passkey-origin', 'http://localhost:8080'];

      for (const wrong of ['http://app.example.com', 'https://192.0.2.1', `${page}/`, '*']) {
        const refused = await edit('--passkey-origin', wrong);
        expect(refused.code, wrong).to.equal(2);
      }
      const planned = await edit(...another, '--dry-run');
      expect(planned.stdout).to.match(/[1-9]\d* passkeys? of another host/);
      expect((await loginOptions(world.globex)).body.rpId).to.equal('app.example.com');

      const edited = await edit(...another, '--json');
      const { changes, passkeysLost } = JSON.parse(edited.stdout);
      expect(changes).to.deep.equal([
        { field: 'passkeyOrigins', from: page, to: `${secondPage}, http://localhost:8080` },
      ]);
      expect(passkeysLost).to.be.at.least(1);
      await eventually(
        async () => (await loginOptions(world.globex)).body.rpId === 'shop.example.net',
      );
      const lost = authenticator.get((await loginOptions(world.globex)).body, {
        origin: page,
        rpId: 'app.example.com',
      });
      expectProblem(await loginAlone(world.globex, lost), 401, 'invalid_passkey');

      await edit('--passkey-origin', 'none');
      await eventually(async () => (await loginOptions(world.globex)).status === 400);
      expectProblem(await loginOptions(world.globex), 400, 'wrong_state');
      expectProblem(await client.post(`${passkeysPath}/options`, {}), 400, 'wrong_state');

      const back = await edit('--app-url', `${page}/{action}#{token}`, '--json');
      expect(JSON.parse(back.stdout).passkeysLost).to.equal(0);
      await eventually(
        async () => (await loginOptions(world.globex)).body.rpId === 'app.example.com',
      );
      const found = authenticator.get((await loginOptions(world.globex)).body);
      expect((await loginAlone(world.globex, found)).status).to.equal(200);
    });
  });
});
