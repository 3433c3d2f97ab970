import { writeFile } from 'node:fs/promises';
import { expect } from 'chai';
import { pino } from 'pino';
import { openInstallation } from '../../../src/control/installation.ts';
import { readConfig } from '../../../src/lib/config/config.ts';
import { makeIdentity } from '../../../src/operator/backup/archive/identities.ts';
import { startServer } from '../../../src/service/server.ts';
import { Client } from '../../support/client.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { createQuickPasswords } from '../../support/quick-passwords.ts';
import { runCommand } from '../../support/run-command.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { succeed } from '../../support/succeed.ts';
import { use } from '../../support/use.ts';

const password = 'a password of everybody';
/** The times at which two entities with one number were created. */
const [first, second] = ['2026-01-01 10:00:00.000001+00', '2026-01-01 10:00:00.000002+00'];

interface Person {
  name: string;
  role: string;
  scope: string;
  entity: number | null;
  since: string | null;
  state: string;
}

describe('rights after a restore of the control database from an older archive', () => {
  const server = use(createDedicatedServer);
  const passwords = createQuickPasswords();
  const folder = useServerFolder('archives');
  let environment: Record<string, string>;
  let output: string;

  const tenant = (...args: string[]) => succeed(environment, 'tenant', args);

  /** Adds a user, as `name@slug.test`. */
  const add = (
    slug: string,
    name: string,
    role: string,
    scope: string,
    entity: number | null = null,
  ) =>
    server.control(
      `insert into users (tenant_id, role_id, email, password_hash, first_name, last_name, scope, entity_id, entity_since, confirmed_at)
       select t.id, r.id, '${name}@${slug}.test', (select password_hash from users where email = 'admin@acme.test'),
              '${name}', 'x', '${scope}', ${entity}, ${entity === null ? 'null' : `'${first}'`}, now()
         from tenants t join roles r on r.tenant_id = t.id and r.name = '${role}' where t.slug = '${slug}'`,
    );

  const change = (name: string, set: string) =>
    server.control(`update users set ${set} where email = '${name}@acme.test'`);

  const role = (name: string): string =>
    `(select r.id from roles r join tenants t on t.id = r.tenant_id where t.slug = 'acme' and r.name = '${name}')`;

  /** Returns a user as the restored control database has it. */
  async function personOf(name: string, slug = 'acme'): Promise<Person | undefined> {
    const [found] = await server.control<Person>(
      `select first_name as name, r.name as role, scope, entity_id::int as entity, entity_since::text as since,
              case when disabled_at is null then 'active' else 'disabled' end as state
         from users u join roles r on r.id = u.role_id
        where first_name = '${name}' and email like '%@${slug}.test'`,
    );
    return found;
  }

  const expectLine = (line: string): void => {
    expect(output.split('\n').map(each => each.trim())).to.include(line);
  };

  before(async () => {
    const { identity, recipient } = await makeIdentity();
    const identityFile = `${folder}.identity`;
    await writeFile(identityFile, `${identity}\n`, { mode: 0o600 });
    environment = {
      ...server.environment,
      BACKUP_TARGET: folder,
      BACKUP_RECIPIENTS: recipient,
      BACKUP_IDENTITY_FILE: identityFile,
    };
    for (const slug of ['acme', 'globex']) await server.provision(slug);

    const hash = await passwords.hash(password);
    await server.control(`update users set password_hash = '${hash}'`);
    await server.control(
      `insert into roles (tenant_id, name, permissions)
       select t.id, r.name, r.permissions::text[] from tenants t, (values
         ('Reader', '{orders.read}'), ('Writer', '{orders.read,orders.write}'),
         ('Clerk', '{products.read,products.write}'), ('Chief', '{orders.read}')) as r (name, permissions)`,
    );
    await server.control(
      `update tenants set features = '{legacyTokens,selfRegistration}', app_url = 'https://old.example',
              passkey_origins = '{https://kept.example,https://sold.example}'`,
    );
    for (const [name, ...access] of [
      ['unchanged', 'Writer', 'Self', 1],
      ['demoted', 'Writer', 'All'],
      ['promoted', 'Reader', 'All'],
      ['renamed', 'Chief', 'All'],
      ['clerk', 'Clerk', 'All'],
      ['limited', 'Writer', 'All', 1],
      ['widened', 'Writer', 'Self', 1],
      ['moved', 'Writer', 'Self', 1],
      ['remade', 'Writer', 'Self', 1],
      ['placed', 'Writer', 'All', 1],
      ['leaver', 'Writer', 'All'],
      ['replaced', 'Writer', 'All'],
      ['corrected', 'Writer', 'All'],
    ] as [string, string, string, number?][]) {
      await add('acme', name, ...access);
    }
    await change('corrected', `password_hash = 'none', confirmed_at = null, invited_at = now()`);
    await change('leaver', 'disabled_at = now()');
    await add('globex', 'clerk', 'Clerk', 'All');
    await tenant('backup', 'init');
    await tenant('backup', 'run', '--all');
    const [{ name: archive }] = JSON.parse(await tenant('backup', 'list', '--json')).filter(
      (each: { tenant: string | null }) => each.tenant === null,
    );

    await change('demoted', `role_id = ${role('Reader')}`);
    await change('promoted', `role_id = ${role('Writer')}`);
    await change('leaver', `role_id = ${role('Reader')}, scope = 'Self'`);
    await server.control(`update roles set name = 'Head' where id = ${role('Chief')}`);
    await server.control(
      `update roles set permissions = '{products.read,pricing.read}' where id = ${role('Clerk')}`,
    );
    await change('limited', `scope = 'Self'`);
    await change('widened', `scope = 'All'`);
    await change('moved', `entity_id = 2`);
    await change('remade', `entity_since = '${second}'`);
    await change('placed', `entity_id = 2, entity_since = '${second}'`);
    await change(
      'replaced',
      `password_hash = '${await passwords.hash('another password, set later')}'`,
    );
    await change('corrected', `email = 'right@acme.test'`);
    await server.control(`update tenants set features = '{legacyTokens}' where slug = 'acme'`);
    await server.control(`update tenants set isolated = true where slug = 'globex'`);
    await server.control(
      `update tenants set app_url = 'https://new.example' where slug = 'acme';
       update tenants set app_url = null where slug = 'globex';
       update tenants set passkey_origins = '{https://kept.example,https://later.example}' where slug = 'acme'`,
    );
    await server.control(
      `insert into sign_in_rules (tenant_id, password_logins, except_users)
       select id, 'refused', array(select u.id from users u where u.tenant_id = t.id)
         from tenants t where slug = 'globex'`,
    );
    await tenant('backup', 'run', '--all');
    await server.sql('drop database office with (force)');

    const args = ['restore', '--archive', archive];
    const { code, stdout, stderr } = await runCommand('scripts/control.ts', args, environment);
    expect(code, stderr + stdout).to.equal(0);
    output = stdout;
  });

  it('a person whose rights are the same in both states keeps them, and is not named', async () => {
    expect(await personOf('unchanged')).to.include({ role: 'Writer', scope: 'Self', entity: 1 });
    expect((await personOf('unchanged'))?.state).to.equal('active');
    expect(output).not.to.include('unchanged@acme.test');
  });

  it('a later role or scope that is within the restored one is taken over', async () => {
    expect(await personOf('demoted')).to.include({ role: 'Reader', state: 'active' });
    expect(await personOf('limited')).to.include({ scope: 'Self', entity: 1, state: 'active' });
    expectLine('acme: demoted@acme.test: role was Reader later, was restored as Writer');
    expectLine('acme: limited@acme.test: scope was Self later, was restored as All');
  });

  it('a person whose later role or scope is not within the restored one is disabled, and named', async () => {
    expect(await personOf('promoted')).to.include({ role: 'Reader', state: 'disabled' });
    expect(await personOf('renamed')).to.include({ role: 'Chief', state: 'disabled' });
    expect(await personOf('widened')).to.include({ scope: 'Self', state: 'disabled' });
    expectLine(
      'acme: promoted@acme.test: role was Writer later, was restored as Reader: is disabled',
    );
    expectLine('acme: renamed@acme.test: role was Head later, was restored as Chief: is disabled');
    expectLine('acme: widened@acme.test: scope was All later, was restored as Self: is disabled');
  });

  it('an entity that differs is the later one, and its user of scope Self is disabled, also when both have one number', async () => {
    expect(await personOf('moved')).to.include({ entity: 2, state: 'disabled' });
    expect(await personOf('remade')).to.include({ entity: 1, state: 'disabled', since: second });
    expect(await personOf('placed')).to.include({ entity: 2, state: 'active', since: second });
    expectLine('acme: moved@acme.test: entity was 2 later, was restored as 1: is disabled');
    expectLine(
      'acme: remade@acme.test: entity was another one with the number 1 later: is disabled',
    );
    expectLine('acme: placed@acme.test: entity was 2 later, was restored as 1');
  });

  it('a person who was disabled stays so, with the narrower rights', async () => {
    expect(await personOf('leaver')).to.include({
      role: 'Reader',
      scope: 'Self',
      state: 'disabled',
    });
  });

  it('a role keeps the permissions of both states, in its own tenant alone', async () => {
    const clerks = await server.control<{ slug: string; permissions: string }>(
      `select slug, array_to_string(permissions, ' ') as permissions
         from roles r join tenants t on t.id = r.tenant_id where r.name = 'Clerk' order by slug`,
    );

    expect(clerks).to.deep.equal([
      { slug: 'acme', permissions: 'products.read' },
      { slug: 'globex', permissions: 'products.read products.write' },
    ]);
    expect(await personOf('clerk', 'globex')).to.include({ state: 'active' });
    expect(output).not.to.include('clerk@globex.test');
  });

  it('an invitation whose address was corrected later is disabled, so that nobody at the former one gets a password', async () => {
    expect(await personOf('corrected')).to.include({ state: 'disabled' });
    expectLine('acme: corrected@acme.test: address was right@acme.test later: is disabled');
  });

  it('a feature that was switched off later stays off, a tenant that was isolated later is isolated, links in mails lead to the later address, and passkeys work on pages of both alone', async () => {
    const states = await server.control(
      `select slug, array_to_string(features, ' ') as features, isolated, app_url as url,
              array_to_string(passkey_origins, ' ') as origins from tenants order by slug`,
    );

    expect(states).to.deep.equal([
      {
        slug: 'acme',
        features: 'legacyTokens',
        isolated: false,
        url: 'https://new.example',
        origins: 'https://kept.example',
      },
      {
        slug: 'globex',
        features: 'legacyTokens selfRegistration',
        isolated: true,
        url: null,
        origins: 'https://kept.example https://sold.example',
      },
    ]);
    expectLine(
      'acme: features were legacyTokens later, were restored as legacyTokens and selfRegistration: those of both are left, links in its mails led to https://new.example later, and do so again, further pages with passkeys were https://kept.example and https://later.example later, were restored as https://kept.example and https://sold.example: those of both are left',
    );
    expectLine(
      'globex: was isolated later, and is so again, links in its mails led to the address of the installation later, and do so again',
    );
  });

  it('a tenant that refused passwords later refuses them again, but for the people who were excepted', async () => {
    const rules = await server.control(
      `select t.slug, password_logins as rule, array(select email from users where id = any (except_users) order by email) as except
         from sign_in_rules join tenants t on t.id = tenant_id`,
    );

    expect(rules).to.deep.equal([
      { slug: 'globex', rule: 'refused', except: ['admin@globex.test', 'clerk@globex.test'] },
    ]);
    expectLine(
      'Refuse passwords: globex. Where nobody can sign in at the provider: bin/backoffice edit TENANT --password-logins allowed',
    );
  });

  it('the report counts the people who were disabled', () => {
    expectLine('Taken away later, and so again: 6 users disabled, 0 API clients revoked.');
  });

  it('over HTTP, who is disabled or has another password does not log in, and the others have the narrower rights', async () => {
    const config = readConfig({ ...environment, PORT: '0', MANAGEMENT_PORT: '0' });
    const installation = await openInstallation(config);
    const service = await startServer({
      config,
      installation,
      log: pino({ level: 'silent' }),
      passwords,
    });
    const url = `http://127.0.0.1:${service.port}`;
    const login = (name: string, slug = 'acme', secret = password) =>
      new Client(url).post(
        '/api/v1/auth/login',
        { email: `${name}@${slug}.test`, password: secret },
        { 'X-Tenant': slug },
      );
    const statusOf = async (...args: Parameters<typeof login>) => (await login(...args)).status;

    const { body: tokens } = await login('demoted');
    const { body: me } = await new Client(url, tokens).get('/api/v1/auth/me');
    expect(me).to.deep.include({ role: 'Reader', permissions: ['orders.read'] });
    expect(await statusOf('promoted')).to.equal(401);
    expect(await statusOf('replaced')).to.equal(401);
    expect(await statusOf('replaced', 'acme', 'another password, set later')).to.equal(401);
    expect(await statusOf('unchanged')).to.equal(200);
    expect(await statusOf('clerk', 'globex')).to.equal(200);

    await service.stop();
    await installation.close();
  });
});
