import { randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { owners } from '../../src/control/secret-box.ts';
import { runScript, startScript } from '../support/command-line.ts';
import { eventually } from '../support/eventually.ts';
import { freePort } from '../support/free-port.ts';
import { postgresUrl } from '../support/test-server.ts';
import { useFolder } from '../support/use.ts';
import { controlSql, useWorld } from '../support/world.ts';

const secret = 'sEcReT-wOrD-4711';

describe('drill: secrets in errors', () => {
  const world = useWorld();
  const folder = useFolder();

  /** Runs the command line, which must fail, and returns all that it printed. */
  async function fail(
    args: string[],
    settings: Record<string, string> = {},
    input = '',
  ): Promise<string> {
    const { code, stdout, stderr } = await runScript(
      'scripts/tenant.ts',
      args,
      { ...world.environment, ...settings },
      input,
    );
    expect(code, args.join(' ')).to.be.within(1, 2);
    return `${args.join(' ')}: ${stdout}${stderr}`;
  }

  async function storeServerUrl(url: string): Promise<void> {
    const sealed = world.installation.secrets.seal(url, owners.serverUrl('far'));
    await controlSql(
      world,
      `insert into servers (name, prefix, admin_url) values ('far', 'test', ?)
         on conflict (name) do update set admin_url = excluded.admin_url`,
      [sealed],
    );
  }

  const withSecret = (url: string): string => {
    const changed = new URL(url);
    changed.password = secret;
    return changed.href;
  };

  it('no error of the settings or of a database contains the secret that it is about', async () => {
    const path = join(folder, 'secret');
    await writeFile(path, secret, { mode: 0o600 });

    const outputs = [
      await fail(['list'], { DATABASE_URL: `postgresql://u:${secret}@:x/` }),
      await fail(['list'], { DATABASE_URL: `postgresql://u:${secret}%@127.0.0.1:1/x` }),
      await fail(['list'], { DATABASE_URL: `postgresql://u:${secret}@127.0.0.1:1/x` }),
      await fail(['list', '--json'], { DATABASE_URL: withSecret(world.installation.controlUrl) }),
      await fail(['list'], {
        MASTER_KEY: secret,
        REDIS_URL: secret,
        SMTP_URL: secret,
        MASTER_KEY_PREVIOUS: secret,
      }),
      await fail(['list'], { MASTER_KEY: '', MASTER_KEY_FILE: path }),
      await fail(['list'], { MASTER_KEY_FILE: path }),
      await fail(['list'], { DATABASE_URL: '', DATABASE_URL_FILE: path }),
      await fail(['server', 'add', 'far'], {}, secret),
      await fail(['server', 'add', 'far'], {}, `postgresql://u:${secret}@:x`),
      await fail(['server', 'add', 'far'], {}, `postgresql://u:${secret}%@127.0.0.1:1/x`),
      await fail(
        ['server', 'add', 'far'],
        {},
        `postgresql://u:${secret}@127.0.0.1:1/x?sslmode=${secret}`,
      ),
      await fail(['server', 'add', 'far', '--json'], {}, withSecret(postgresUrl())),
      await fail(
        ['user', 'password', 'acme', 'nobody@acme.test', '--password-stdin', '--yes'],
        {},
        secret,
      ),
      await fail(['user', 'add', 'acme', world.acme.admin.email, '--password-stdin'], {}, secret),
    ];

    for (const output of outputs) expect(output).not.to.include(secret);
  });

  for (const [what, url] of [
    ['that is no URL', `postgresql://u:${secret}@:x`],
    ['with a malformed password', `postgresql://u:${secret}%@127.0.0.1:1/x`],
    ['of a server that is down', `postgresql://u:${secret}@127.0.0.1:1/x`],
    ['with a wrong password', 'wrong password'],
  ] as const) {
    it(`no command prints the password of an admin URL ${what}`, async () => {
      await storeServerUrl(url === 'wrong password' ? withSecret(postgresUrl()) : url);
      const slug = `initech-${randomBytes(4).toString('hex')}`;
      const provision = ['provision', slug, '--name', 'Initech', '--admin-email', 'a@initech.test'];

      const outputs = [
        await fail([...provision, '--server', 'far']),
        await fail([...provision, '--server', 'far', '--json']),
      ];

      for (const args of [
        ['doctor', '--json'],
        ['migrate', '--all', '--json'],
        ['server', 'list'],
      ]) {
        const { stdout, stderr } = await runScript('scripts/tenant.ts', args, world.environment);
        outputs.push(stdout + stderr);
      }

      const migrated = await runScript('scripts/control.ts', ['migrate'], world.environment);
      outputs.push(migrated.stdout + migrated.stderr);

      for (const output of outputs) expect(output).not.to.include(secret);
    });
  }

  it('a service that Redis, mail server and tenant database refuse logs none of their passwords', async () => {
    const [port, managementPort] = [String(await freePort()), String(await freePort())];
    const service = startScript('src/main.ts', [], {
      ...world.environment,
      PORT: port,
      MANAGEMENT_PORT: managementPort,
      LOG_LEVEL: 'trace',
      REDIS_URL: `redis://user:${secret}@127.0.0.1:1`,
      SMTP_URL: `smtp://user:${secret}@127.0.0.1:1`,
    });
    await eventually(() => service.output.stdout.includes('"event":"listening"'), 60_000);

    const sealed = world.installation.secrets.seal(secret, owners.rolePassword(world.globex.guid));
    await controlSql(world, 'update tenants set role_password = ? where id = ?', [
      sealed,
      world.globex.id,
    ]);

    const post = (path: string, body: object, tenant = world.acme) =>
      fetch(`http://127.0.0.1:${port}${path}`, {
        method: 'POST',
        body: JSON.stringify(body),
        headers: {
          'X-Tenant': tenant.guid,
          'Content-Type': 'application/json',
          'X-Api-Token': secret,
        },
      });

    const responses = [
      await post('/api/v1/auth/reset-password', { email: world.acme.admin.email }),
      await post('/api/v1/auth/login', { email: world.acme.admin.email, password: secret }),
      await post(
        '/api/v1/auth/login',
        { email: world.globex.admin.email, password: secret },
        world.globex,
      ),
      await post(`/api/v1/auth/refresh?token=${secret}`, { refreshToken: secret }),
      await post('/api/v1/auth/confirm', { token: secret }),
      await post('/api/v1/EntityStatus', { Title: secret }),
    ];

    const texts = await Promise.all(responses.map(response => response.text()));
    await eventually(() => service.output.stdout.includes('mail_failed'), 30_000);
    service.process.kill('SIGINT');
    const { stdout, stderr } = await service.ended;

    for (const text of [...texts, stdout, stderr]) expect(text).not.to.include(secret);
    expect(stdout).to.include('rate_limits_own');
  });
});
