import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { migrationNames } from '../../../src/lib/postgres/migration-names.ts';
import { closedStamp } from '../../../src/operator/databases/store/database-stamp.ts';
import { provisionDemoTenant } from '../../../src/operator/lifecycle/demo-records.ts';
import { checkManifest, readManifest } from '../../../src/operator/lifecycle/manifest.ts';
import { readSchemaSteps } from '../../../src/operator/schema/schema-steps.ts';
import { tenantGroup } from '../../../src/operator/schema/template.ts';
import { Client } from '../../support/client.ts';
import { jsonLines } from '../../support/json-lines.ts';
import { runCommand } from '../../support/run-command.ts';
import { postgresUrl, server } from '../../support/test-server.ts';
import { useFolder } from '../../support/use.ts';
import { controlSql, sql, type TestTenant, useWorld } from '../../support/world.ts';
import { argumentsOf, at, provisionChecks } from './provision-checks.ts';

describe('provision of tenants', () => {
  const world = useWorld();
  const folder = useFolder();

  const {
    runProvision,
    provision,
    expectServed,
    expectComplete,
    expectNotServed,
    tenantsOf,
    listServer,
  } = provisionChecks(() => world);

  it('provision prints one document, whose administrator can log in and read three statuses', async () => {
    const document = await provision(...argumentsOf('vandelay'), '--app-id', 'vandelay-app');

    expect(Object.keys(document)).to.deep.equal([
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
      'schemaVersion',
      'createdAt',
      'created',
      'admin',
    ]);

    expect(document).to.include({
      slug: 'vandelay',
      name: 'vandelay Ltd',
      appId: 'vandelay-app',
      server: 'default',
      status: 'active',
      schemaVersion: (await migrationNames('tenant')).at(-1),
      created: true,
    });

    expect(Object.keys(document.admin ?? {})).to.deep.equal(['email', 'password']);
    expect(document.admin?.password).to.have.length.at.least(16);

    await expectServed(document);
    await expectComplete('vandelay');
  });

  it('provision of an existing slug fails and changes nothing', async () => {
    const before = await tenantsOf('acme');
    const { code, stdout, stderr } = await runProvision(
      'acme',
      '--name',
      'Other',
      '--admin-email',
      'other@acme.test',
    );
    expect({ code, stdout }).to.deep.equal({ code: 1, stdout: '' });
    expect(stderr).to.match(/acme/);
    expect(await tenantsOf('acme')).to.deep.equal(before);
    await world.login(world.acme);
  });

  it('a second provision with the same manifest changes nothing', async () => {
    const file = join(folder, 'hooli.json');
    await writeFile(
      file,
      JSON.stringify({
        slug: 'hooli',
        name: 'Hooli',
        features: ['legacyTokens'],
        admin: { email: 'Gavin@Hooli.test', firstName: 'Gavin', lastName: 'B' },
        users: [{ email: 'bighead@hooli.test', entity: 'Endframe' }],
        entities: [
          { name: 'Endframe', entityType: 'supplier' },
          { name: 'Raviga', entityType: 'customer' },
        ],
      }),
    );
    const first = await provision('--file', file);
    expect(first).to.deep.include({ created: true, appId: 'hooli' });
    expect(first.admin?.email).to.equal('gavin@hooli.test');
    expect(first.users?.map(({ email }) => email)).to.deep.equal(['bighead@hooli.test']);
    await expectServed(first);
    const user = await world.anonymous.post('/api/v1/auth/login', first.users?.[0], {
      'X-Tenant': first.guid,
    });
    expect(user.body.entityType).to.equal('supplier');
    const { body } = await new Client(world.url, user.body).get('/api/v1/auth/me');
    expect(body).to.include({ tenantName: 'Hooli', scope: 'Self', role: 'Member' });
    expect(body.features).to.deep.equal(['legacyTokens']);

    const second = await provision('--file', file);
    const { admin: _, users: __, ...unchanged } = first;
    expect(second).to.deep.equal({ ...unchanged, created: false });
    const entities = await sql<{ name: string }>(
      at(first),
      'select name from entities order by name',
    );
    expect(entities.map(({ name }) => name)).to.deep.equal(['Endframe', 'Raviga']);
    const text = await runCommand(
      'scripts/tenant.ts',
      ['provision', '--file', file],
      world.environment,
    );
    expect([text.code, text.stdout]).to.deep.equal([
      0,
      'hooli exists already: nothing was changed. Show it: bin/backoffice show hooli. ' +
        'If the password that was printed is lost, set another one: bin/backoffice user password hooli EMAIL\n',
    ]);
  });

  it('provision with an invalid slug or manifest fails with exit code 2 and creates nothing', async () => {
    const before = await controlSql(world, 'select id from tenants');
    const nothing = { databases: [], roles: [] };
    expect(await listServer('initrode')).to.deep.equal(nothing);

    const slugs = [
      'a',
      'Acme',
      '1st',
      `a"b`,
      `a'b`,
      'a`b',
      'a/b',
      '..',
      '../acme',
      'a b',
      'a_b',
      'a;drop',
      'ümlaut',
      'a-',
    ];
    slugs.push(
      'x'.repeat(33),
      'x'.repeat(100),
      'a\nb',
      'acme\n',
      ' acme',
      'postgres',
      'template0',
      'template1',
      '',
    );
    for (const slug of slugs) {
      expect(
        () => checkManifest({ slug, name: 'x', admin: { email: 'a@b.test' } }, 'it'),
        slug,
      ).to.throw(/slug/);
    }
    const faulty = [
      '{"slug":"initrode"}',
      '{"slug":"initrode","name":"x","admin":{"email":"a@b.test","password":"in the file"}}',
      '{"slug":"../acme","name":"x","admin":{"email":"a@b.test"}}',
      '{',
      ...[
        { features: ['selfregistration'] },
        { users: [{ email: 'A@b.test' }] },
        { users: [{ email: 'b@b.test' }, { email: 'b@b.test' }] },
        { users: [{ email: 'b@b.test', role: 'Nobody' }] },
        { users: [{ email: 'b@b.test', entity: 'Missing' }] },
        { entities: ['customer', 'supplier'].map(entityType => ({ name: 'Twice', entityType })) },
      ].map(more =>
        JSON.stringify({ slug: 'initrode', name: 'x', admin: { email: 'a@b.test' }, ...more }),
      ),
    ];
    const files = faulty.map((_, index) => join(folder, `faulty-${index}.json`));
    await Promise.all(files.map((file, index) => writeFile(file, faulty[index] ?? '')));
    const attempts = [
      ...[`a"; drop database "${world.acme.database}`, 'ACME'].map(slug => [
        ...argumentsOf('initrode').slice(1),
        '--',
        slug,
      ]),
      ...files.map(file => ['--file', file]),
      [...argumentsOf('initrode'), '--feature', 'legacyToken'],
      ['initrode', '--file', 'tenants/demo.json'],
      ['--file', 'tenants/demo.json', '--feature', 'beside'],
    ];
    await Promise.all(
      attempts.map(async args => {
        const { code, stdout, stderr } = await runCommand(
          'scripts/tenant.ts',
          ['provision', ...args],
          world.environment,
        );
        expect({ code, stdout }, args.join(' ')).to.deep.equal({ code: 2, stdout: '' });
        expect(stderr.trim(), args.join(' '))
          .to.match(/\S/)
          .and.not.include('\n')
          .and.not.include('in the file');
        expect(stderr, args.join(' ')).not.to.include('Invalid input');
      }),
    );
    expect(await controlSql(world, 'select id from tenants')).to.deep.equal(before);
    expect(await listServer('initrode')).to.deep.equal(nothing);
  });

  it('of two concurrent provisions of one slug, one creates the tenant and the other fails', async () => {
    const both = await Promise.allSettled([
      world.provision('contested'),
      world.provision('contested'),
    ]);
    expect(both.map(({ status }) => status).sort()).to.deep.equal(['fulfilled', 'rejected']);
    for (const result of both) if (result.status === 'fulfilled') await expectServed(result.value);
    await expectComplete('contested');
  });

  it('provision of a folder creates each tenant once, prints a line for each login, and reports failed manifests at the end', async () => {
    const manifests = join(folder, 'many');
    const write = (file: string, content: object | string) =>
      writeFile(
        join(manifests, file),
        typeof content === 'string' ? content : JSON.stringify(content),
      );
    const manifestOf = (slug: string) => ({
      slug,
      name: slug,
      admin: { email: `admin@${slug}.test` },
    });
    const runFolder = (...args: string[]) =>
      runCommand(
        'scripts/tenant.ts',
        ['provision', '--file', manifests, ...args],
        world.environment,
      );
    await mkdir(manifests);
    for (const slug of ['folder-0', 'folder-1']) await write(`${slug}.json`, manifestOf(slug));
    await write('bad.json', '{ "slug": "postgres" }');
    await write('elsewhere.json', { ...manifestOf('nowhere'), server: 'none' });

    const { code, stdout, stderr } = await runFolder('--json');
    await write('folder-2.json', manifestOf('folder-2'));
    const again = await runFolder();

    const lines: { slug: string; created: boolean; file: string; error?: string }[] =
      jsonLines(stdout);
    const made = lines.filter(({ error }) => !error).map(({ slug, created }) => [slug, created]);
    const failed = lines.filter(({ error }) => error).map(({ file }) => file);
    expect({ code, stderr }).to.deep.equal({ code: 1, stderr: '' });
    expect(made.sort()).to.deep.equal([
      ['folder-0', true],
      ['folder-1', true],
    ]);
    expect(failed.sort()).to.deep.equal(['bad.json', 'elsewhere.json']);
    const [made2 = '', end = ''] = again.stdout.split('\n\n');
    const withoutPasswords = made2.split('\n').map(line => line.replace(/ {2}\S{12,}$/, '  …'));
    expect(again.code).to.equal(1);
    expect(withoutPasswords.sort()).to.deep.equal([
      '  admin@folder-2.test  …',
      'folder-0 exists already: nothing was changed.',
      'folder-1 exists already: nothing was changed.',
      'folder-2 is provisioned on default.',
    ]);
    expect(end).to.match(
      /^bad\.json: .*\nelsewhere\.json: .*\n5 manifests, 2 failed\. Passwords are shown only this once\.\n$/,
    );
  });

  it('the log has one row of a manifest, which names its tenant, and of a folder one more of the command', async () => {
    const manifests = join(folder, 'logged');
    await mkdir(manifests);
    for (const slug of ['logged-0', 'logged-1', 'logged-2']) {
      const manifest = { slug, name: slug, admin: { email: `admin@${slug}.test` } };
      await writeFile(join(manifests, `${slug}.json`), JSON.stringify(manifest));
    }
    const provisionFile = (file: string) =>
      runCommand('scripts/tenant.ts', ['provision', '--file', file], world.environment);
    const rows = async () =>
      (
        await controlSql<{ slug: string | null; state: string }>(
          world,
          `select slug, state from operator_actions where command = 'provision' and arguments ->> 'file' like ?
            order by slug`,
          [`${manifests}%`],
        )
      ).map(({ slug, state }) => `${slug} ${state}`);

    await provisionFile(join(manifests, 'logged-0.json'));
    const ofOne = await rows();
    await provisionFile(manifests);

    expect(ofOne).to.deep.equal(['logged-0 done']);
    expect(await rows()).to.deep.equal([
      'logged-0 done',
      'logged-1 done',
      'logged-2 done',
      'null done',
    ]);
  });

  /**
   * The traces on the server of a provision that is killed at one step, after the row of the
   * tenant.
   */
  const leftovers: Record<string, (names: TestTenant) => Promise<unknown>> = {
    'before it creates its role': async ({ database }) => {
      await onServer(`drop database "${database}"`);
      await onServer(`drop role "${database}"`);
    },
    'before it creates its database': ({ database }) => onServer(`drop database "${database}"`),
    'before it lets its role connect': async tenant => {
      await sql(tenant, 'delete from tenant_identity');
      await onServer(`revoke all on database "${tenant.database}" from "${tenant.database}"`);
      await onServer(`alter database "${tenant.database}" allow_connections false`);
    },
    'before it stamps its database': tenant => sql(tenant, 'delete from tenant_identity'),
    'before it runs the migrations of an earlier version': async ({ database }) => {
      await onServer(`drop database "${database}"`);
      await onServer(`create database "${database}" template template0`);
    },
    'while another one drops its database': ({ database }) =>
      onServer(`update pg_database set datconnlimit = -2 where datname = '${database}'`),
    'before it fills its database': tenant =>
      sql(tenant, `update tenant_identity set guid = '${closedStamp(tenant.guid)}'`),
  };
  const onServer = (text: string) => withConnection(postgresUrl(), client => client.query(text));

  // A drill kills provisions at every moment.
  for (const [step, leave] of Object.entries(leftovers)) {
    it(`of a provision that was killed ${step}, the next one and purge drop what is there, and nothing else`, async () => {
      const number = Object.keys(leftovers).indexOf(step);
      const [again, purged] = [`again-${number}`, `purged-${number}`];
      const others = async () => [
        await sql(world.acme, 'select guid from tenant_identity'),
        await tenantsOf('globex'),
      ];
      const before = await others();
      for (const slug of [again, purged]) {
        const tenant = await world.provision(slug);
        await controlSql(
          world,
          `update tenants set status = 'provisioning' where id = ${tenant.id}`,
        );
        await controlSql(
          world,
          `update tenant_databases set state = 'reserved' where tenant_id = ${tenant.id}`,
        );
        await onServer(`alter role "${tenant.database}" nologin`);
        await leave(tenant);
        await expectNotServed(tenant.guid);
      }
      const [left] = await tenantsOf(again);

      const document = await provision(...argumentsOf(again), '--name', 'Other Ltd');
      const purge = await runCommand(
        'scripts/tenant.ts',
        ['purge', purged, '--yes'],
        world.environment,
      );

      expect(document).to.include({ guid: left?.guid, created: true, name: 'Other Ltd' });
      expect(document.database).not.to.equal(left?.database);
      await expectServed(document);
      await expectComplete(again);
      expect(purge.code, purge.stderr).to.equal(0);
      expect(await listServer(purged)).to.deep.equal({ databases: [], roles: [] });
      expect(await others()).to.deep.equal(before);
    });
  }

  it('databases names the leftovers of a killed provision, which the same command or purge ends', async () => {
    const stopped = await world.provision('halved');
    await controlSql(world, `update tenants set status = 'provisioning' where id = ${stopped.id}`);
    await controlSql(
      world,
      `update tenant_databases set state = 'reserved' where tenant_id = ${stopped.id}`,
    );

    const { stdout } = await runCommand(
      'scripts/tenant.ts',
      ['databases', 'halved', '--json'],
      world.environment,
    );

    const remedy = 'bin/backoffice purge halved, or the same command again';
    expect(JSON.parse(stdout)[0].why).to.equal(
      `a command has ended before it was complete: ${remedy}`,
    );
    expect((await runProvision(...argumentsOf('halved'))).code).to.equal(0);
  });

  it('a demo tenant that was killed after it got its records is completed, and its activities have an existing user', async () => {
    const { installation, passwords, control } = world;
    const file = fileURLToPath(new URL('../../../tenants/demo.json', import.meta.url));
    const manifest = { ...(await readManifest(file)), slug: 'killed-demo' };

    const { tenant } = await provisionDemoTenant(installation, passwords, manifest);
    await control.em
      .fork()
      .execute(`update tenants set status = 'provisioning' where id = ?`, [tenant.id]);

    const { created, logins } = await provisionDemoTenant(installation, passwords, manifest);
    expect(created).to.equal(true);

    const client = await world.login({ ...world.acme, guid: tenant.guid }, logins[0]);
    const [user] = await control.em
      .fork()
      .execute<{ id: string }[]>('select id from users where tenant_id = ?', [tenant.id]);
    const userId = Number(user?.id);

    const activities = (await client.get('/api/v1/Activity')).body;
    expect(activities.map(({ UserId }: { UserId: number }) => UserId)).to.deep.equal([
      userId,
      userId,
      userId,
    ]);
  });

  it('a provision that an older build began, with fewer migrations, is completed by this build', async () => {
    const older = await world.provision('older');
    const steps = await readSchemaSteps();
    const setGroup = `set app.tenant_group = '${tenantGroup(server)}'`;

    for (const { name, down } of steps.filter(step => step.name > '0005').reverse()) {
      await sql(
        older,
        [setGroup, ...down, `delete from migrations where name = '${name}'`].join(';'),
      );
    }

    await sql(older, 'delete from tenant_identity');
    await controlSql(
      world,
      `update tenants set status = 'provisioning', schema_version = null where id = ?`,
      [older.id],
    );

    const { code, stdout, stderr } = await runProvision(...argumentsOf('older'));
    expect(code, stderr).to.equal(0);
    expect(stderr).not.to.match(/error|schema_version/i);
    await expectServed(JSON.parse(stdout));
  });

  it('every database of a killed provision belongs to a tenant', async () => {
    expect(await listServer('nobody')).to.deep.equal({ databases: [], roles: [] });
  });
});
