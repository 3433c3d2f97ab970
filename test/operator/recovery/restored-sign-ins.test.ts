import { expect } from 'chai';
import { pino } from 'pino';
import { type Installation, openInstallation } from '../../../src/control/installation.ts';
import { readConfig } from '../../../src/lib/config/config.ts';
import { type RunningServer, startServer } from '../../../src/service/server.ts';
import { expectProblem } from '../../accounts/people/people-world.ts';
import { backupSettings } from '../../support/backup-settings.ts';
import { type ApiResponse, Client } from '../../support/client.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { startProvider } from '../../support/identity-provider.ts';
import { createQuickPasswords } from '../../support/quick-passwords.ts';
import { runCommand } from '../../support/run-command.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { succeed } from '../../support/succeed.ts';
import { use } from '../../support/use.ts';

const password = 'a password of everybody';

describe('sign-ins after a restore of the control database from an older archive', () => {
  const provider = use(startProvider);
  const server = use(createDedicatedServer);
  const passwords = createQuickPasswords();
  const folder = useServerFolder('archives');
  let environment: Record<string, string>;
  let installation: Installation;
  let service: RunningServer;
  let output: string;
  /** ID tokens of before the restore, which nobody has used. */
  let unused: { ada: string; otto: string };

  const tenant = (...args: string[]) => succeed(environment, 'tenant', args);
  const tokenOf = (sub: string): Promise<string> => provider.sign(provider.claims(sub));
  const post = (path: string, body: object, slug: string): Promise<ApiResponse> =>
    new Client(`http://127.0.0.1:${service.port}`).post(`/api/v1/auth/${path}`, body, {
      'X-Tenant': slug,
    });
  const exchange = (idToken: string, slug: string) => post('exchange', { idToken }, slug);
  const login = (name: string, slug: string) =>
    post('login', { email: `${name}@${slug}.test`, password }, slug);

  /** Adds a member of a tenant, who has linked the account of the same name at the provider. */
  const addLinked = async (slug: string, name: string): Promise<void> => {
    await server.addMember(slug, name);
    await server.control(
      `insert into identities (tenant_id, user_id, provider_id, subject)
       select u.tenant_id, u.id, p.id, '${name}'
         from users u join identity_providers p on p.tenant_id = u.tenant_id
        where u.email = '${name}@${slug}.test'`,
    );
  };

  before(async () => {
    const tenants = [];
    for (const slug of ['acme', 'globex', 'initech']) {
      tenants.push((await server.provision(slug)).tenant);
    }
    environment = {
      ...server.environment,
      ...(await backupSettings(folder)),
      TRUSTED_PROVIDERS: provider.trustedBy(tenants),
    };
    await server.control(
      `insert into identity_providers (tenant_id, name, issuer, client_ids)
       select id, 'Staff', '${provider.issuer}', '{${provider.clientIds[0]}}' from tenants`,
    );
    await addLinked('acme', 'nora');
    for (const name of ['ada', 'leaver']) await addLinked('globex', name);
    await addLinked('initech', 'otto');
    await server.control(`update users set password_hash = '${await passwords.hash(password)}'`);
    await tenant('backup', 'init');
    await tenant('backup', 'run', '--all');
    const [{ name: archive }] = JSON.parse(await tenant('backup', 'list', '--json')).filter(
      (each: { tenant: string | null }) => each.tenant === null,
    );

    await server.control(
      `update identity_providers set is_enabled = false
        where tenant_id = (select id from tenants where slug = 'acme');
       delete from identities where subject = 'leaver';
       insert into sign_in_rules (tenant_id, password_logins, except_users)
       select tenant_id, 'refused', array[id] from users where email = 'admin@globex.test'`,
    );
    await tenant('backup', 'run', '--all');
    unused = { ada: await tokenOf('ada'), otto: await tokenOf('otto') };
    await server.sql('drop database office with (force)');

    const args = ['restore', '--archive', archive];
    const { code, stdout, stderr } = await runCommand('scripts/control.ts', args, environment);
    expect(code, stderr + stdout).to.equal(0);
    output = stdout;

    const config = readConfig({ ...environment, PORT: '0', MANAGEMENT_PORT: '0' });
    installation = await openInstallation(config);
    const log = pino({ level: 'silent' });
    service = await startServer({ config, installation, log, passwords });
  });
  after(async () => {
    await service?.stop();
    await installation?.close();
  });

  it('a provider that was disabled later lets nobody in, by a new ID token either', async () => {
    expectProblem(await exchange(await tokenOf('nora'), 'acme'), 401, 'invalid_id_token');
    expect((await login('nora', 'acme')).status).to.equal(200);
  });

  it('an identity that was unlinked later lets nobody in, and one that stayed does', async () => {
    expectProblem(await exchange(await tokenOf('leaver'), 'globex'), 401, 'invalid_id_token');
    expect((await exchange(await tokenOf('ada'), 'globex')).status).to.equal(200);
  });

  it('an ID token of before the restore lets nobody in, and one of after it does', async () => {
    expectProblem(await exchange(unused.ada, 'globex'), 401, 'invalid_id_token');
    expectProblem(await exchange(unused.otto, 'initech'), 401, 'invalid_id_token');
    expect((await exchange(await tokenOf('otto'), 'initech')).status).to.equal(200);
  });

  it('a tenant that refused passwords later refuses them, but for the people of Except, and another one does not', async () => {
    expectProblem(await login('ada', 'globex'), 401, 'invalid_credentials');
    expect((await login('admin', 'globex')).status).to.equal(200);
    expect((await login('otto', 'initech')).status).to.equal(200);
  });

  it('the report says what was taken away again', () => {
    expect(output).to.include(
      'Sign-ins by providers: 0 providers removed again, 1 provider limited to what both states permit, 1 identity unlinked again.',
    );
    expect(output).to.include('Refuse passwords: globex.');
  });
});
