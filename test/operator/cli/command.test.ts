import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import { Tenant } from '../../../src/control/control-entities.ts';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { migrationNames } from '../../../src/lib/postgres/migration-names.ts';
import {
  createControlDatabase,
  migrateControl,
} from '../../../src/operator/schema/migrate-control.ts';
import { Client } from '../../support/client.ts';
import type { ScriptResult } from '../../support/command-line.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { jsonLines } from '../../support/json-lines.ts';
import { runCommand } from '../../support/run-command.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { controlSql, type TestTenant, useWorld, type World } from '../../support/world.ts';

const path = '/api/v1/EntityStatus';

describe('command line', () => {
  const world = useWorld();
  let head: string;

  before(async () => {
    head = (await migrationNames('tenant')).at(-1) ?? '';
  });

  const tenant = (args: string[], input?: string): Promise<ScriptResult> =>
    runCommand('scripts/tenant.ts', args, world.environment, input);

  /**
   * Runs a command with --json that must succeed.
   * @returns the document that it printed
   */
  async function json<Document>(args: string[], input?: string): Promise<Document> {
    const { code, stdout, stderr } = await tenant([...args, '--json'], input);
    expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
    return JSON.parse(stdout) as Document;
  }

  const logIn = (email: string, password: string, { guid }: TestTenant = world.acme) =>
    world.anonymous.post('/api/v1/auth/login', { email, password }, { 'X-Tenant': guid });

  /**
   * Expects one line without a stack, without a file name of the project and without a secret.
   */
  function expectOneLine(text: string): void {
    expect(text.trimEnd()).to.match(/\S/).and.not.include('\n');
    expect(text).not.to.match(/\bat .*\.ts|node_modules|:\/\/\S+@/);
    for (const secret of [world.environment.MASTER_KEY, new URL(postgresUrl()).password]) {
      expect(text).not.to.include(secret);
    }
  }

  describe('exit codes', () => {
    it('--help exits with 0 on every level of commands', async () => {
      const levels = [['--help'], ['provision', '--help'], ['user', 'add', '--help']];
      for (const { code, stdout, stderr } of await Promise.all(
        levels.map(args => runCommand('scripts/tenant.ts', args, {})),
      )) {
        expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
        expect(stdout).to.match(/^Usage: bin\/backoffice/);
      }
    });

    it('wrong usage exits with 2 and changes no tenant', async () => {
      const before = await listOf(world);
      const wrong = [
        ['nothing'],
        ['list', '--nothing'],
        ['user', 'add', 'acme', 'x@acme.test', '--scope', 'Everything'],
        ['user', 'add', 'acme', 'not-an-address'],
        ['migrate'],
        ['migrate', '--all', '--concurrency', '0'],
        ['provision', 'initech'],
      ];

      await Promise.all(
        wrong.map(async args => {
          const { code, stdout, stderr } = await tenant(args);
          expect({ code, stdout }, args.join(' ')).to.deep.equal({ code: 2, stdout: '' });
          expect(stderr, args.join(' ')).not.to.equal('');
        }),
      );

      expect(await listOf(world)).to.deep.equal(before);
    });

    it('a failure exits with 1 and prints one line on stderr and nothing on stdout', async () => {
      const failing = [
        ['user', 'add', 'acme', 'x@acme.test', '--role', 'Emperor'],
        ['user', 'add', 'acme', 'x@acme.test', '--entity', '4711'],
        ['user', 'add', 'acme', world.acme.admin.email],
        ['user', 'password', 'acme', 'nobody@acme.test', '--yes'],
        [
          'provision',
          'initech',
          '--name',
          'Initech',
          '--admin-email',
          'a@initech.test',
          '--server',
          'elsewhere',
        ],
      ];

      await Promise.all(
        failing.map(async args => {
          const { code, stdout, stderr } = await tenant([...args, '--json']);
          expect({ code, stdout }, args.join(' ')).to.deep.equal({ code: 1, stdout: '' });
          expectOneLine(stderr);
        }),
      );

      expect((await listOf(world)).map(({ slug }) => slug)).to.deep.equal(['acme', 'globex']);
    });

    it('an unreachable, empty or misnamed control database exits with 1 and one line without a secret', async () => {
      const wrong: [Record<string, string>, RegExp][] = [
        [{ DATABASE_URL: 'postgresql://nobody:secret-word@127.0.0.1:1/none' }, /DATABASE_URL/],
        [
          {
            DATABASE_URL:
              world.environment.DATABASE_URL?.replace(/\/world_\w+$/, '/nothing_here') ?? '',
          },
          /DATABASE_URL/,
        ],
        [{ DATABASE_URL: postgresUrl() }, /bin\/backoffice control migrate/],
        [
          { DATABASE_URL: 'mysql://localhost/secret-word', MASTER_KEY: 'secret-word' },
          /DATABASE_URL.*MASTER_KEY/,
        ],
      ];

      await Promise.all(
        wrong.map(async ([settings, message]) => {
          const { code, stdout, stderr } = await runCommand('scripts/tenant.ts', ['list'], {
            ...world.environment,
            ...settings,
          });

          expect({ code, stdout }).to.deep.equal({ code: 1, stdout: '' });
          expect(stderr)
            .to.match(message)
            .and.not.match(/secret-word/);
          expectOneLine(stderr);
        }),
      );
    });
  });

  describe('list and show', () => {
    it('list and show --json contain only fields that are not secret', async () => {
      const all = await json<Record<string, unknown>[]>(['list']);
      expect(all.map(({ slug, status }) => [slug, status])).to.deep.equal([
        ['acme', 'active'],
        ['globex', 'active'],
      ]);

      const fields = [
        'id',
        'guid',
        'slug',
        'aliases',
        'name',
        'appId',
        'appUrl',
        'passkeyOrigins',
        'database',
        'server',
        'status',
        'isolated',
        'health',
        'reasons',
        'checkedAt',
        'schemaVersion',
        'createdAt',
      ];

      expect(all[0]).to.have.all.keys(fields);
      expect(all[0]).to.include({
        id: world.acme.id,
        guid: world.acme.guid,
        database: world.acme.database,
        schemaVersion: head,
      });

      const one = await json<Record<string, unknown>>(['show', 'acme']);
      expect(one).to.have.all.keys([...fields, 'features', 'users', 'otherDatabases', 'keys']);
      const users = await controlSql(world, 'select from users where tenant_id = ?', [
        world.acme.id,
      ]);
      expect(one.users).to.equal(users.length);
      expect((one.keys as object[])[0]).to.have.all.keys('kid', 'status', 'createdAt', 'retiredAt');
    });

    it('list and show print aligned text without --json', async () => {
      const [{ code, stdout }, shown] = await Promise.all([
        tenant(['list']),
        tenant(['show', 'globex']),
      ]);
      expect(code).to.equal(0);
      expect(stdout.split('\n')[0]).to.match(/^slug +name +status/);
      expect(stdout).to.match(
        new RegExp(`^acme +acme Ltd +active +(well|unchecked) +${head} +default`, 'm'),
      );
      expect(shown.stdout).to.match(new RegExp(`^guid +${world.globex.guid}$`, 'm'));
      expect(shown.stdout).to.match(/^signing key +[0-9a-f-]{36} +active/m);
    });
  });

  describe('users', () => {
    it('user add adds the user to the named tenant only, and shows the generated password only once', async () => {
      const added = await json<Record<string, string>>([
        'user',
        'add',
        'acme',
        'Bob@Acme.test',
        '--scope',
        'All',
        '--role',
        'Member',
      ]);

      expect(added).to.have.all.keys('guid', 'email', 'role', 'scope', 'entityId', 'password');
      expect(added.email).to.equal('bob@acme.test');
      expect((await logIn('bob@acme.test', added.password ?? '')).status).to.equal(200);
      expect((await logIn('bob@acme.test', added.password ?? '', world.globex)).status).to.equal(
        401,
      );

      const listed = await tenant(['user', 'list', 'acme', '--json']);
      expect(listed.stdout).not.to.include(added.password);
      expect(listed.stdout).not.to.match(/argon2|hash/i);

      const users = JSON.parse(listed.stdout) as Record<string, unknown>[];
      expect(
        users.map(({ email, role, scope, state }) => [email, role, scope, state]),
      ).to.deep.equal([
        [world.acme.admin.email, 'Administrator', 'All', 'active'],
        ['bob@acme.test', 'Member', 'All', 'active'],
      ]);
    });

    it('user add --password-stdin reads the password from stdin and never prints it', async () => {
      const password = 'correct horse battery staple';
      const added = await tenant(
        ['user', 'add', 'acme', 'dave@acme.test', '--password-stdin', '--json'],
        `${password}\n`,
      );
      expect(added.code).to.equal(0);
      expect(added.stdout + added.stderr).not.to.include(password);
      expect((await logIn('dave@acme.test', password)).status).to.equal(200);

      await Promise.all(
        ['short', 'x'.repeat(129)].map(async bad => {
          const refused = await tenant(
            ['user', 'add', 'acme', 'erin@acme.test', '--password-stdin'],
            bad,
          );
          expect(refused.code).not.to.equal(0);
          expectOneLine(refused.stderr);
          expect(refused.stderr).not.to.include(bad);
        }),
      );
      expect((await logIn('erin@acme.test', 'short')).status).to.equal(401);
    });

    it('a password as an argument is refused as wrong usage', async () => {
      const attempts = [
        ['user', 'add', 'acme', 'frank@acme.test', '--password', 'in-the-arguments'],
        ['user', 'password', 'acme', world.acme.admin.email, 'in-the-arguments', '--yes'],
        [
          'provision',
          'initech',
          '--name',
          'x',
          '--admin-email',
          'a@b.test',
          '--admin-password',
          'in-the-arguments',
        ],
      ];

      const ended = await Promise.all(attempts.map(args => tenant(args)));

      expect(ended.map(({ code }) => code)).to.deep.equal([2, 2, 2]);
      expect((await logIn(world.acme.admin.email, world.acme.admin.password)).status).to.equal(200);
    });

    it('user password sets a new password and revokes every session of the user', async () => {
      const { globex } = world;
      const [phone, laptop] = [await world.login(globex), await world.login(globex)];
      const other = await world.login(world.acme);

      const set = await json<{ password: string }>([
        'user',
        'password',
        'globex',
        globex.admin.email.toUpperCase(),
        '--yes',
      ]);
      for (const { tokens } of [phone, laptop]) {
        await eventually(
          async () => (await new Client(world.url, tokens).get('/api/v1/auth/me')).status === 401,
          announcedMs,
        );
        const refreshed = await world.anonymous.post(
          '/api/v1/auth/refresh',
          { refreshToken: tokens?.refreshToken },
          { 'X-Tenant': globex.guid },
        );
        expect(refreshed.status).to.equal(401);
      }
      expect((await other.get('/api/v1/auth/me')).status).to.equal(200);
      expect((await logIn(globex.admin.email, globex.admin.password, globex)).status).to.equal(401);
      expect((await logIn(globex.admin.email, set.password, globex)).status).to.equal(200);

      const chosen = 'another good password';
      const withStdin = await tenant(
        ['user', 'password', 'globex', globex.admin.email, '--password-stdin', '--yes'],
        chosen,
      );
      expect(withStdin.code).to.equal(0);
      expect(withStdin.stdout).not.to.include(chosen);
      expect((await logIn(globex.admin.email, set.password, globex)).status).to.equal(401);
      globex.admin.password = chosen;
      await world.login(globex);
    });
  });

  describe('migrate', () => {
    it('a tenant behind head gets 503 until migrate brings it to head, and other tenants are served', async () => {
      const [acme, globex] = [await world.login(world.acme), await world.login(world.globex)];
      await world.control.em
        .fork()
        .nativeUpdate(Tenant, { id: world.acme.id }, { schemaVersion: '0000-before' });
      const refused = await eventually(async () => {
        const response = await acme.get(path);
        return response.status !== 200 && response;
      }, announcedMs);
      expect([refused.status, refused.body.code]).to.deep.equal([503, 'migration_pending']);
      expect(Number(refused.headers.get('retry-after'))).to.be.at.least(1);
      expect((await globex.get(path)).status).to.equal(200);

      const { code, stdout } = await tenant(['migrate', '--all', '--json']);
      expect(code).to.equal(0);
      const outcomes = jsonLines(stdout);
      expect(outcomes).to.have.length(1);
      expect(outcomes[0]).to.include({
        slug: 'acme',
        state: 'migrated',
        from: '0000-before',
        to: head,
      });
      expect(outcomes[0].ms).to.be.a('number');
      await eventually(async () => (await acme.get(path)).status === 200, announcedMs);
    });

    it('two commands that migrate the control database at the same time apply each migration once', async () => {
      const name = `control_${randomBytes(5).toString('hex')}`;
      const url = databaseUrl(postgresUrl(), name);
      const migrate = async (): Promise<string[]> => {
        await createControlDatabase(url);
        return migrateControl(url);
      };
      const both = await Promise.all([migrate(), migrate()]);
      expect(both.flat()).to.deep.equal(await migrationNames('control'));
      const environment = { ...world.environment, DATABASE_URL: url };
      const lastRun = await runCommand('scripts/control.ts', ['migrate'], environment);
      expect([lastRun.code, lastRun.stdout]).to.deep.equal([0, 'Nothing to do.\n']);
    });
  });
});

/** Returns the tenants from the control database. */
async function listOf({
  control,
}: World): Promise<{ slug: string; schemaVersion: string | null }[]> {
  return control.em
    .fork()
    .execute('select slug, schema_version as "schemaVersion", status from tenants order by slug');
}
