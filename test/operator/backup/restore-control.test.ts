import { randomUUID } from 'node:crypto';
import { copyFile, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { owners } from '../../../src/control/secret-box.ts';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { type AgeIdentity, makeIdentity } from '../../../src/operator/backup/archive/identities.ts';
import { countText } from '../../../src/operator/command/texts.ts';
import { membersOf, sealBytes, tarOf } from '../../support/age-archives.ts';
import { type CopiedServer, copyServer } from '../../support/copied-server.ts';
import { createDedicatedServer } from '../../support/dedicated-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { succeed } from '../../support/succeed.ts';
import { use } from '../../support/use.ts';

/** Adds two programs to acme, each with a key. */
const addPrograms = `
  with programs as (
    insert into users (tenant_id, guid, kind, email, password_hash, first_name, last_name, role_id, scope, confirmed_at)
    select t.id, p.guid, 'program', 'program:' || p.guid, 'none', p.name, '', r.id, 'All', now()
      from tenants t join roles r on r.tenant_id = t.id and r.name = 'Member',
           (values ('till', gen_random_uuid()), ('old-till', gen_random_uuid())) as p (name, guid)
     where t.slug = 'acme'
    returning id, tenant_id, guid)
  insert into program_keys (tenant_id, program_id, hash, prefix, expires_at)
  select tenant_id, id, sha256(guid::text::bytea), 'sbk_01234567', now() + interval '1 year' from programs`;

/** Makes a server, and the settings of a host that archives it and opens the archives. */
function useArchives() {
  const server = use(createDedicatedServer);
  const folder = useServerFolder('archives');
  let environment: Record<string, string>;
  let identity: AgeIdentity;

  before(async () => {
    identity = await makeIdentity();
    const identityFile = `${folder}.identity`;
    await writeFile(identityFile, `${identity.identity}\n`, { mode: 0o600 });
    environment = {
      ...server.environment,
      BACKUP_TARGET: folder,
      BACKUP_RECIPIENTS: identity.recipient,
      BACKUP_IDENTITY_FILE: identityFile,
    };
  });
  after(() => rm(`${folder}.identity`));

  return {
    server,
    folder,
    settings: () => environment,
    identity: () => identity,
    dropControl: () => server.sql('drop database office with (force)'),
  };
}

describe('restore of the control database from an archive sealed with age', () => {
  const { server, folder, settings, identity: ownIdentity, dropControl } = useArchives();
  let environment: Record<string, string>;
  let identity: AgeIdentity;
  /** The first archive of the control database. */
  let first: string;
  /** A copy of the server, of the moment of the first archive. */
  let recovered: CopiedServer;
  /** The tenants of every later archive. */
  const laterStates = ['acme active', 'globex suspended', 'initech deleted', 'umbra-three active'];

  const tenant = (...args: string[]) => succeed(environment, 'tenant', args);
  const restore = (...args: string[]) =>
    runCommand('scripts/control.ts', ['restore', ...args], environment);
  const archives = async (): Promise<string[]> =>
    JSON.parse(await tenant('backup', 'list', '--json'))
      .filter(({ tenant: guid }: { tenant: string | null }) => guid === null)
      .map(({ name }: { name: string }) => name);
  const states = async (): Promise<string[]> =>
    (
      await server.control<{ text: string }>(
        `select slug || ' ' || status as text from tenants order by slug`,
      )
    ).map(({ text }) => text);
  const disabled = async (): Promise<string[]> =>
    (
      await server.control<{ name: string }>(
        `select case kind when 'program' then first_name else split_part(email, '@', 1) end as name
           from users where disabled_at is not null order by 1`,
      )
    ).map(({ name }) => name);

  before(async () => {
    environment = settings();
    identity = ownIdentity();
    for (const slug of ['acme', 'globex', 'initech', 'hooli', 'umbra']) {
      await server.provision(slug);
    }
    for (const name of ['leaver', 'returner', 'replaced', 'removed']) {
      await server.addMember('acme', name);
    }
    await tenant('client', 'add', 'acme', 'leaver@acme.test', '--name', 'old program');
    await server.control(addPrograms);
    await server.control(`update users set disabled_at = now() where email = 'returner@acme.test'`);
    await tenant('backup', 'init');
    await tenant('backup', 'run', '--all');
    [first = ''] = await archives();
    recovered = await copyServer(server.url);

    await server.control(`update users set disabled_at = now() where email = 'leaver@acme.test'`);
    await server.control(`update users set disabled_at = null where email = 'returner@acme.test'`);
    await tenant('user', 'remove', 'acme', 'removed@acme.test', '--yes');
    await server.control(
      `update users set disabled_at = now() where kind = 'program' and first_name = 'old-till'`,
    );
    await server.control(
      `update users set networks = '{10.0.0.0/8}' where kind = 'program' and first_name = 'till'`,
    );
    await server.control(
      `update users set password_hash = 'replaced' where email = 'replaced@acme.test'`,
    );
    await server.control(`update roles set permissions = '{}' where name = 'Member'`);
    await tenant('suspend', 'globex', '--yes');
    await tenant('delete', 'initech', '--yes');
    await tenant('delete', 'hooli', '--yes');
    await tenant('purge', 'hooli', '--yes');
    await tenant('edit', 'umbra', '--slug', 'umbra-two');
    await tenant('edit', 'umbra-two', '--slug', 'umbra-three', '--alias-days', '0');
    await server.control(
      `insert into tenant_slugs (slug, tenant_guid) values ('later', gen_random_uuid())`,
    );
  });
  beforeEach(async () => {
    await tenant('backup', 'init', '--take-over');
    await tenant('backup', 'run', '--all');
  });
  after(() => recovered?.close());

  it('a restore from an older archive repeats each new slug, disabling, suspension, deletion and purge of the newest archive, disables the users that the newest lacks, lets in no key of a program, and enables nobody', async () => {
    const revoked = await server.control('select from api_clients where revoked_at is not null');
    await dropControl();

    const { code, stdout, stderr } = await restore('--archive', first);

    expect(code, stderr + stdout).to.equal(0);
    expect(await states()).to.deep.equal(laterStates);
    expect(
      await server.control(
        `select slug, round(extract(epoch from alias_until - now()) / 86400)::int > 0 as alias
           from tenant_slugs where alias_until is not null order by slug`,
      ),
    ).to.deep.equal([
      { slug: 'hooli', alias: false },
      { slug: 'later', alias: false },
      { slug: 'umbra', alias: true },
      { slug: 'umbra-two', alias: false },
    ]);
    expect(await disabled()).to.deep.equal(['leaver', 'old-till', 'removed', 'returner']);
    expect(
      await server.control(
        `select first_name as name, networks::text, count(k.id)::int as keys, count(k.revoked_at)::int as revoked
           from users u join program_keys k on k.program_id = u.id group by u.id order by 1`,
      ),
    ).to.deep.equal([
      { name: 'old-till', networks: '{}', keys: 1, revoked: 1 },
      { name: 'till', networks: '{10.0.0.0/8}', keys: 1, revoked: 1 },
    ]);
    expect(await server.control('select slug from purged_tenants')).to.deep.equal([
      { slug: 'hooli' },
    ]);
    expect(await server.control('select from api_clients where revoked_at is null')).to.deep.equal(
      [],
    );
    expect(await server.control('select from sessions where revoked_at is null')).to.deep.equal([]);
    for (const line of [
      `Taken away later, and so again: 3 users disabled, ${countText(revoked.length, 'API client')} revoked.`,
      'Suspended or deleted later, and so again: globex, initech.',
      'Purged later, and removed again: hooli.',
      'Renamed later, and so again: umbra-three (was umbra).',
      'acme: program till: networks were 10.0.0.0/8 later, and are so again',
      'acme: replaced@acme.test: password was replaced later, so there is none: set one',
    ]) {
      expect(stdout).to.include(line);
    }
    expect(stdout).to.match(/acme: role Member: permissions were {2}later, were restored as \w/);
    expect(stdout).to.match(/Nobody knows what was changed from \S+Z to \S+Z/);
  });

  it('the newest archive that this master key has signed is restored, and newer ones that it has not signed are named before', async () => {
    const [own = ''] = await archives();
    const bytes = await readFile(join(folder, own));
    const later = (name: string, seconds: number): string =>
      name.replace(
        /\d{8}T\d{6}\.\d{3}Z/,
        new Date(Date.now() + seconds * 1_000).toISOString().replace(/[-:]/g, ''),
      );
    const members = await membersOf({ bytes, identity });
    const { mac: _, ...unsigned } = JSON.parse(members.at(-1)?.content.toString() ?? '');
    const [renamed, stranger] = [later(own, 30), later(own, 60)];
    const header = { ...JSON.parse(members[0]?.content.toString() ?? ''), name: stranger };
    const forged = await tarOf([
      { name: 'header.json', content: Buffer.from(JSON.stringify(header)) },
      ...members.slice(1, -1),
      {
        name: 'manifest.json',
        content: Buffer.from(`${JSON.stringify({ ...unsigned, name: stranger }, null, 1)}\n`),
      },
    ]);
    await copyFile(join(folder, own), join(folder, renamed));
    await writeFile(join(folder, stranger), await sealBytes(forged, identity));
    await dropControl();

    const planned = await restore('--dry-run');
    const { code, stdout, stderr } = await restore();
    await rm(join(folder, renamed));
    await rm(join(folder, stranger));

    expect(code, stderr + stdout).to.equal(0);
    expect(stdout).to.include(`Restored the control database from ${own}.`);
    for (const output of [planned.stdout, stderr]) {
      expect(output).to.include(
        `The newer archive ${renamed} cannot be used: it was made under another name: ${own}`,
      );
      expect(output).to.match(
        new RegExp(
          `The newer archive ${stranger} cannot be used: .*nobody knows who has written it`,
        ),
      );
    }
    expect(await states()).to.deep.equal(laterStates);
  });

  it('a restore from a recovered server disables what the newest archive has as disabled, unless the operator says that there is no archive', async () => {
    const from = (settings: Record<string, string | undefined>, ...args: string[]) => {
      const chosen = Object.entries({ ...environment, ...settings }).filter(
        ([, value]) => value !== undefined,
      );
      const set = Object.fromEntries(chosen) as Record<string, string>;
      return runCommand('scripts/control.ts', ['restore', '--from', ...args], set, recovered.url);
    };
    const nothing = { BACKUP_TARGET: undefined, BACKUP_IDENTITY_FILE: undefined };
    await dropControl();

    const without = await from(nothing);
    expect(without.code).to.equal(1);
    expect(without.stderr).to.match(/^BACKUP_TARGET is not set/);
    const typed = await from(nothing, '--without-replay', 'somewhere');
    expect(typed.stderr).to.match(/^That is not office: nothing was changed/);

    const replayed = await from({});
    expect(replayed.code, replayed.stderr).to.equal(0);
    expect(await disabled()).to.deep.equal(['leaver', 'old-till', 'removed', 'returner']);
    expect(await states()).to.deep.equal(laterStates);

    await dropControl();
    const alone = await from(nothing, '--without-replay', 'office');
    expect(alone.code, alone.stderr).to.equal(0);
    expect(await disabled()).to.deep.equal(['returner']);

    await dropControl();
    expect((await restore()).code).to.equal(0);
  });

  it('of several installations in one target, the one that is named is restored, and without a name none', async () => {
    const [own = ''] = await archives();
    const [id = ''] = own.split('/');
    const other: Record<string, string> = {
      ...environment,
      DATABASE_URL: databaseUrl(server.url, 'office_other'),
    };
    const withoutTarget = { ...other, BACKUP_TARGET: '' };
    await succeed(withoutTarget, 'control', ['migrate']);
    const admin = ['--name', 'Umbrella', '--admin-email', 'admin@umbrella.test'];
    await succeed(withoutTarget, 'tenant', ['provision', 'umbrella', ...admin]);
    await succeed(other, 'tenant', ['backup', 'init']);
    await succeed(other, 'tenant', ['backup', 'run', '--all']);
    const otherId = (await readdir(folder)).find(name => name !== id && !name.includes('.')) ?? '';
    await dropControl();

    for (const args of [[], ['--dry-run'], ['--all'], ['--installation', 'f00d']]) {
      const refused = await restore(...args);

      expect(refused.code, args.join(' ')).to.equal(2);
      expect(refused.stderr).to.match(
        /^Of control databases, folder \S+ has (those of several|none of an) installation/,
      );
      expect(refused.stderr).to.include(`--installation ${otherId} (1 archive, the newest of `);
      expect(refused.stderr).to.match(
        new RegExp(`--installation ${id} \\(\\d+ archives, the newest of \\d`),
      );
    }
    expect(await server.sql(`select from pg_database where datname = 'office'`)).to.deep.equal([]);

    const { code, stdout, stderr } = await restore('--installation', id.slice(0, 8));

    expect(code, stderr + stdout).to.equal(0);
    expect(stdout).to.include(`Restored the control database from ${own}.`);
    expect(await states()).to.deep.equal(laterStates);

    await dropControl();
    expect((await restore('--archive', own)).code).to.equal(0);
    expect(await states()).to.deep.equal(laterStates);
    await succeed(other, 'tenant', ['delete', 'umbrella', '--yes']);
    await succeed(other, 'tenant', ['purge', 'umbrella', '--yes']);
    await server.sql('drop database office_other with (force)');
    await rm(join(folder, otherId), { recursive: true });
  });

  it('a database with tables of others is not taken for an empty control database, and stays as it is', async () => {
    await dropControl();
    await server.sql('create database office');
    await server.sql(
      'create table invoices (id integer); insert into invoices values (1)',
      'office',
    );
    const refusal = async (): Promise<string> => {
      const { code, stderr } = await restore();
      expect(code, stderr).to.equal(1);
      return stderr;
    };

    expect(await refusal()).to.match(
      /^The database of DATABASE_URL has tables that are not of a control database: public\.invoices\. /,
    );

    await succeed({ ...environment, BACKUP_TARGET: '' }, 'control', ['migrate']);
    expect(await refusal()).to.include('are not of a control database: public.invoices');
    expect(await server.sql('select id from invoices', 'office')).to.deep.equal([{ id: 1 }]);

    await server.sql('create schema billing; alter table invoices set schema billing', 'office');
    expect(await refusal()).to.include('are not of a control database: billing.invoices');
    expect(await server.sql('select id from billing.invoices', 'office')).to.deep.equal([
      { id: 1 },
    ]);

    await server.sql('drop schema billing cascade', 'office');
    expect((await restore()).code).to.equal(0);
  });

  it('without the master key or an identity nothing is restored, and names that nobody has typed are asked for', async () => {
    const refusal = async (
      settings: Record<string, string>,
      ...args: string[]
    ): Promise<string> => {
      const { code, stderr } = await runCommand('scripts/control.ts', ['restore', ...args], {
        ...environment,
        ...settings,
      });
      expect(code, stderr).to.be.oneOf([1, 2]);
      return stderr;
    };
    await dropControl();
    const otherKey = Buffer.alloc(32, 7).toString('base64');
    const stranger = await makeIdentity();
    await writeFile(`${folder}.stranger`, stranger.identity);

    expect(await refusal({ MASTER_KEY: otherKey })).to.match(
      /^No archive of a control database in .* can be used/,
    );
    expect(await refusal({ BACKUP_IDENTITY_FILE: `${folder}.stranger` })).to.include(
      'no identity in BACKUP_IDENTITY_FILE opens it',
    );
    expect(await refusal({}, '--without-mac', 'somewhere')).to.match(
      /^That is not office: nothing was changed/,
    );
    expect(await refusal({}, '--without-replay', 'office')).to.match(
      /^Give --without-replay together with --from/,
    );
    expect(
      await server.sql(
        `select from pg_database where datname in ('office', 'office_restoring', 'office_later')`,
      ),
    ).to.deep.equal([]);

    const { code, stderr } = await restore();
    expect(code, stderr).to.equal(0);
    await rm(`${folder}.stranger`);
  });
});

describe('restore of the control database when the master key is lost', () => {
  const { server, folder, settings, dropControl } = useArchives();
  let environment: Record<string, string>;

  const tenant = (...args: string[]) => succeed(environment, 'tenant', args);
  const restore = (...args: string[]) =>
    runCommand('scripts/control.ts', ['restore', ...args], environment);
  /** Returns the names of the files of archives below a folder of the installation. */
  const filesOf = async (kind: 'control' | 'tenants'): Promise<string[]> =>
    (await readdir(folder, { recursive: true })).filter(
      name => name.includes(`/${kind}/`) && name.endsWith('.age'),
    );

  before(async () => {
    environment = settings();
    for (const slug of ['acme', 'globex', 'initech']) await server.provision(slug);
    const [person] = await server.control<{ tenant: string; guid: string; user: string }>(
      `select t.id as tenant, t.guid, u.id as "user" from users u join tenants t on t.id = u.tenant_id where slug = 'acme'`,
    );
    const { tenant: id = '', guid = '', user = '' } = person ?? {};
    const factor = randomUUID();
    const key = server.installation.secrets.seal('the key', owners.factor(guid, factor));
    await server.control(
      `insert into factors (id, tenant_id, user_id, kind, name, secret, confirmed_at)
       values ('${factor}', ${id}, ${user}, 'totp', 'Phone', '\\x${key.toString('hex')}', now());
       insert into recovery_codes (tenant_id, user_id, hash) values (${id}, ${user}, 'x');
       insert into login_networks (user_id, network) values (${user}, '192.0.2.1')`,
    );
    await tenant('backup', 'init');
    await tenant('backup', 'run', '--all');
    await tenant('delete', 'initech', '--yes');
  });

  it('when the master key is lost, a new one takes its place with the name typed, and what the lost one sealed is named and replaced', async () => {
    await tenant('suspend', 'acme', '--yes');
    await tenant('resume', 'acme');
    await tenant('backup', 'run', '--all');
    await dropControl();
    const acme = await server.sql<{ name: string }>(
      `select datname as name from pg_database where datname like '%\\_tenant\\_%' order by 1 limit 1`,
    );
    await server.sql(`drop database "${acme[0]?.name}" with (force)`);
    environment = { ...environment, MASTER_KEY: Buffer.alloc(32, 9).toString('base64') };

    const refused = await restore();
    expect(refused.stderr).to.include('--archive <name> --without-mac <name of the database>');
    const [newest = ''] = (await filesOf('control')).sort().reverse();
    const [ofTenant = ''] = (await filesOf('tenants')).sort().reverse();
    const planted = [newest, ofTenant].map(name => name.replace(/\/\d{8}T/, '/29990101T'));
    for (const name of planted) await copyFile(join(folder, newest), join(folder, name));

    for (const options of [[], ['--dry-run']]) {
      const unnamed = await restore('--all', '--without-mac', 'office', ...options);
      expect(unnamed.code).to.equal(2);
      expect(unnamed.stderr).to.include('No list records the archives of a lost control database');
      expect(unnamed.stderr).to.include(`The newest is ${planted[0]} (`);
    }
    const { code, stdout, stderr } = await restore(
      '--all',
      '--archive',
      newest,
      '--without-mac',
      'office',
    );
    expect(stderr).to.include(`The newer archive ${planted[0]} cannot be used: without its code`);
    for (const name of planted) await rm(join(folder, name));

    expect(code, stderr + stdout).to.equal(0);
    for (const line of [
      'MASTER_KEY is the master key from now on.',
      'The keys of 1 authenticator app of people, which are removed.',
      'Have no other second factor, so no password alone lets them in. Each asks for a new password by mail',
      'acme: admin@acme.test',
      'The passwords of the login roles of 3 tenants. Replace them, with the commands of: bin/backoffice doctor',
      '1 tenant restored, 0 failed',
    ]) {
      expect(stdout).to.include(line);
    }
    expect(
      await server.control(
        `select email, (select count(*)::int from factors) as factors, (select count(*)::int from recovery_codes) as codes,
                (select count(*)::int from login_networks n where n.user_id = u.id) as networks
           from users u where must_set_up_factor`,
      ),
    ).to.deep.equal([{ email: 'admin@acme.test', factors: 0, codes: 0, networks: 0 }]);
    const errors = async () => {
      const { stdout: document } = await runCommand(
        'scripts/tenant.ts',
        ['doctor', '--json'],
        environment,
      );
      return JSON.parse(document).findings.filter(
        ({ severity }: { severity: string }) => severity === 'error',
      );
    };
    const found = await errors();
    expect(
      found.map(({ tenant: slug, problem }: { tenant: string; problem: string }) => [
        slug,
        problem.slice(0, 16),
      ]),
    ).to.deep.equal([
      ['globex', 'the password of '],
      ['initech', 'the password of '],
    ]);
    await tenant('doctor', '--fix', ...found.map(({ id }: { id: string }) => id));
    expect(await errors()).to.deep.equal([]);

    await tenant('backup', 'init', '--take-over');
    await tenant('backup', 'run', '--all');
    await tenant('backup', 'drill', '--count', '3');
    await succeed(
      { ...environment, MASTER_KEY_PREVIOUS: environment.MASTER_KEY ?? '' },
      'control',
      ['reseal', '--yes'],
    );
  });
});
