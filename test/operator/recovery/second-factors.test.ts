import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { factorsPath, factorWorld } from '../../accounts/auth/factors/factor-world.ts';
import { page, passkeyWorld } from '../../accounts/auth/factors/passkey-world.ts';
import { expectProblem } from '../../accounts/people/people-world.ts';
import { eventually } from '../../support/eventually.ts';
import { startMailServer } from '../../support/mail-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld, type TestTenant } from '../../support/world.ts';

describe('second factors in a restored control database', () => {
  const mails = use(startMailServer);
  const world = use(() => createWorld({ SMTP_URL: mails.url }));
  const people = factorWorld(world);
  let later: string;

  const afterRestore = (isReplayed: boolean) =>
    runCommand(
      'scripts/control.ts',
      ['after-restore', ...(isReplayed ? ['--replay'] : []), '--yes', '--json'],
      world.environment,
      isReplayed ? databaseUrl(postgresUrl(), later) : undefined,
    );
  /** Runs a statement in the later control database. */
  const inLater = (text: string, values: unknown[] = []) =>
    withConnection(databaseUrl(postgresUrl(), later), client => client.query(text, values));

  /** Makes the later control database, which has the tenants and people that there are now. */
  const makeLater = async (): Promise<void> => {
    later = `${new URL(world.config.databaseUrl ?? '').pathname.slice(1)}_later`;
    await withConnection(postgresUrl(), async client => {
      await client.query(`drop database if exists ${later} with (force)`);
      await client.query(`create database ${later} template control_template`);
    });
    for (const table of ['tenants', 'roles', 'users', 'factors']) {
      const [{ rows } = { rows: '' }] = await controlSql<{ rows: string }>(
        world,
        `select coalesce(json_agg(t), '[]')::text as rows from ${table} t`,
      );
      await withConnection(databaseUrl(postgresUrl(), later), async client => {
        await client.query('set session_replication_role = replica');
        await client.query(
          `insert into ${table} overriding system value select * from json_populate_recordset(null::${table}, $1)`,
          [rows],
        );
      });
    }
  };
  after(() =>
    withConnection(postgresUrl(), client =>
      client.query(`drop database if exists ${later} with (force)`),
    ),
  );

  it('after-restore ends recovery codes and logins that wait for a code, and apps go on', async () => {
    const { person, client } = await people.add(world.acme);
    const { secret, recoveryCodes } = await people.addTotp(client);
    const waiting = await people.login(person);
    expectProblem(waiting, 401, 'second_factor_required');

    const { code, stdout, stderr } = await afterRestore(false);

    expect(code, stderr).to.equal(0);
    expect(JSON.parse(stdout).recoveryCodesRemoved).to.equal(10);
    const { challenge } = waiting.body;
    const late = await people.verify(person, { challenge, code: people.code(secret) });
    expectProblem(late, 401, 'invalid_challenge');
    const next = await people.login(person);
    const byRecovery = await people.verify(person, {
      challenge: next.body.challenge,
      recoveryCode: recoveryCodes[0],
    });
    expectProblem(byRecovery, 401, 'invalid_code');
    const login = await people.verify(person, {
      challenge: next.body.challenge,
      code: people.code(secret),
    });
    expect(login.status).to.equal(200);
    const again = world.anonymous.withToken(login.body.accessToken);
    const renewed = await again.post(`${factorsPath}/recovery-codes`);
    expect(renewed.body.recoveryCodes).to.have.length(10);
  });

  it('a factor that was removed later does not come back, and a role that required one later does so again', async () => {
    const removed = await people.add(world.acme);
    const { id } = await people.addTotp(removed.client);
    const kept = await people.add(world.globex);
    await people.addTotp(kept.client);
    const required = await people.add(world.globex);
    await makeLater();
    await inLater('delete from factors where id = $1', [id]);
    await inLater('update roles set requires_second_factor = true where id = $1', [
      required.roleId,
    ]);

    const { code, stdout, stderr } = await afterRestore(true);

    expect(code, stderr).to.equal(0);
    expect(JSON.parse(stdout).replayed).to.include({ factorsRemoved: 1 });
    expect((await people.login(removed.person)).status).to.equal(200);
    expectProblem(await people.login(kept.person), 401, 'second_factor_required');
    const ofRole = await people.login(required.person);
    expectProblem(ofRole, 403, 'second_factor_setup_required');
  });

  it('a passkey that a new password held later is held, and one that was confirmed later is not let off', async () => {
    const pages = 'update tenants set passkey_origins = array[?]';
    await controlSql(world, pages, [page]);
    const [held, free] = [await people.add(world.acme), await people.add(world.globex)];
    const passkeys = passkeyWorld(world);
    await eventually(async () => (await passkeys.loginOptions(world.acme)).status === 200);
    await eventually(async () => (await passkeys.loginOptions(world.globex)).status === 200);
    const ofHeld = await passkeys.addPasskey(held.client);
    const ofFree = await passkeys.addPasskey(free.client);
    const wasHeld = await passkeys.addPasskey(free.client);
    await controlSql(world, 'update factors set held_at = now() where id = ?', [wasHeld.id]);
    await makeLater();
    await inLater('update factors set held_at = now() where id = $1', [ofHeld.id]);
    await inLater('update factors set held_at = null where id = $1', [wasHeld.id]);

    const { code, stderr } = await afterRestore(true);

    expect(code, stderr).to.equal(0);
    const alone = async (tenant: TestTenant, { authenticator }: typeof ofHeld) => {
      const { body } = await passkeys.loginOptions(tenant);
      return passkeys.loginAlone(tenant, authenticator.get(body));
    };
    expectProblem(await alone(world.acme, ofHeld), 401, 'invalid_passkey');
    expectProblem(await alone(world.globex, wasHeld), 401, 'invalid_passkey');
    expect((await alone(world.globex, ofFree)).status).to.equal(200);
  });

  it('no password alone lets in who had a factor later and has none here: the person sets one up by a mail', async () => {
    const { person, client, userId } = await people.add(world.acme);
    const { id } = await people.addTotp(client);
    const other = await people.add(world.globex);
    await makeLater();
    // The earlier state has another app, which was replaced later.
    await inLater('update factors set id = gen_random_uuid() where id = $1', [id]);

    const { code, stdout, stderr } = await afterRestore(true);

    expect(code, stderr).to.equal(0);
    const { replayed } = JSON.parse(stdout);
    expect(replayed.factorsLost).to.deep.equal([`acme: ${person.email}`]);
    const refused = await people.login(person);
    expectProblem(refused, 403, 'second_factor_setup_required');
    expect(refused.body).not.to.have.property('setupToken');
    const insert = 'insert into sessions (tenant_id, user_id) values (?, ?)';
    const former = await controlSql(world, insert, [world.acme.id, userId]).then(
      () => 'opened',
      error => String(error.message),
    );
    expect(former).to.include('this session needs a second factor');
    expect((await people.login(other.person)).status).to.equal(200);

    const { email } = person;
    const header = people.header(world.acme);
    await world.anonymous.post('/api/v1/auth/reset-password', { email }, header);
    const token = await mails.waitForToken(email);
    const password = 'a new and long password';
    const set = await world.anonymous.post(
      '/api/v1/auth/reset-password',
      { token, newPassword: password },
      header,
    );
    expect(set.status, JSON.stringify(set.body)).to.equal(204);
    const renewed = { ...person, password };
    const login = await people.login(renewed);
    expectProblem(login, 403, 'second_factor_setup_required');
    const { setupToken } = login.body;
    const { secret } = (await people.setUp(renewed, { setupToken })).body;
    const done = await people.setUp(renewed, { setupToken, code: people.code(secret) }, true);
    expect(done.status, JSON.stringify(done.body)).to.equal(200);
    expectProblem(await people.login(renewed), 401, 'second_factor_required');
    const own = world.anonymous.withToken(done.body.accessToken);
    const [factor] = (await own.get(factorsPath)).body;
    expect((await own.delete(`${factorsPath}/${factor.id}`)).status).to.equal(204);
    expect((await people.login(renewed)).status, 'it is not lost any more').to.equal(200);
  });

  it('an operator resets a lost factor where no mail arrives, and the password lets in then', async () => {
    const { person, userId } = await people.add(world.acme);
    await controlSql(world, 'update users set must_set_up_factor = true where id = ?', [userId]);
    expectProblem(await people.login(person), 403, 'second_factor_setup_required');

    const { code, stderr } = await runCommand(
      'scripts/tenant.ts',
      ['user', 'factors', 'reset', 'acme', person.email, '--reason', 'no mail', '--yes'],
      world.environment,
    );

    expect(code, stderr).to.equal(0);
    await eventually(async () => (await people.login(person)).status === 200);
  });

  it('a purge removes the factors, codes, challenges and logins of its tenant, and those of no other', async () => {
    const leaver = await world.provision('leaver');
    const tables = ['factors', 'recovery_codes', 'wrong_codes', 'login_challenges', 'logins'];
    const owners = await Promise.all([leaver, world.acme].map(tenant => people.add(tenant)));
    for (const { person, client } of owners) {
      await people.addTotp(client);
      const { challenge } = (await people.login(person)).body;
      await people.verify(person, { challenge, code: '000000' });
    }
    await controlSql(
      world,
      `insert into factors (tenant_id, user_id, kind, name, confirmed_at, held_at)
       select tenant_id, user_id, 'passkey', 'Key', now(), now() from factors where tenant_id in (?, ?)`,
      [leaver.id, world.acme.id],
    );
    const rowsOf = ({ id }: { id: number }) =>
      Promise.all(
        tables.map(table => controlSql(world, `select from ${table} where tenant_id = ?`, [id])),
      );
    for (const rows of await rowsOf(leaver)) expect(rows).not.to.deep.equal([]);

    for (const command of ['delete', 'purge']) {
      const { code, stderr } = await runCommand(
        'scripts/tenant.ts',
        [command, 'leaver', '--yes'],
        world.environment,
      );
      expect(code, stderr).to.equal(0);
    }

    for (const rows of await rowsOf(leaver)) expect(rows).to.deep.equal([]);
    for (const rows of await rowsOf(world.acme)) expect(rows).not.to.deep.equal([]);
  });
});
