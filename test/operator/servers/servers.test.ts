import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { readServerIdentity } from '../../../src/lib/postgres/server-address.ts';
import { copyServer } from '../../support/copied-server.ts';
import { eventually } from '../../support/eventually.ts';
import { startOwnServer } from '../../support/own-server.ts';
import { runCommand } from '../../support/run-command.ts';
import { startSilentProxy } from '../../support/silent-proxy.ts';
import { postgresUrl, quickSettings } from '../../support/test-server.ts';
import { useEach } from '../../support/use.ts';
import { controlSql, createWorld, type TestTenant } from '../../support/world.ts';

const path = '/api/v1/EntityStatus';

describe('servers', () => {
  const world = useEach(() => createWorld());
  const second = useEach(() => startOwnServer('second', [...quickSettings, 'max_connections=50']));

  const run = (args: string[], input = '') =>
    runCommand('scripts/tenant.ts', args, world.environment, input);
  /** Adds the second server, or changes its URL. */
  const addSecond = async (url = second.url): Promise<void> => {
    const { code, stderr } = await run(['server', 'add', 'second', '--capacity', '100'], url);
    expect(code, stderr).to.equal(0);
  };
  const provision = async (
    slug: string,
    ...options: string[]
  ): Promise<TestTenant & { server: string }> => {
    const args = [
      'provision',
      slug,
      '--name',
      slug,
      '--admin-email',
      `admin@${slug}.test`,
      '--json',
      ...options,
    ];
    const { code, stdout, stderr } = await run(args);
    expect(code, stderr).to.equal(0);
    return JSON.parse(stdout);
  };

  it('server add reads the URL from stdin, refuses an unusable server, and never prints the URL', async () => {
    await addSecond();

    expect(
      (await run(['server', 'add', 'second'], world.installation.controlUrl)).code,
      'another server',
    ).to.equal(1);
    expect((await run(['server', 'add', 'third'], 'not a url')).code).to.equal(2);

    const unreachable = await run(
      ['server', 'add', 'third'],
      'postgresql://u:very-secret@127.0.0.1:1/x',
    );
    expect(unreachable.code).to.equal(1);
    expect(unreachable.stderr).not.to.include('very-secret');
    expect(unreachable.stderr).to.equal(
      'The server third cannot be used: nothing listens at its address. ' +
        'Start the server, or correct the host and the port in its URL. ' +
        'Then run again: bin/backoffice server add third\n',
    );

    const { stdout } = await run(['server', 'list', '--json']);
    expect(
      JSON.parse(stdout).map(({ name, tenants }: Record<string, unknown>) => [name, tenants]),
    ).to.deep.equal([
      ['default', 2],
      ['second', 0],
    ]);
    expect(stdout).not.to.match(/postgres(ql)?:\/\//);
  });

  it('server add refuses another name for a server, which would make its databases look like those of nobody', async () => {
    await addSecond();

    for (const [url, name, remedy] of [
      [second.url, 'second', '. To change its URL: bin/backoffice server add second'],
      [postgresUrl(), 'default', '.'],
    ] as const) {
      for (const args of [[], ['--dry-run']]) {
        const { code, stderr } = await run(['server', 'add', 'third', ...args], url);
        expect([code, stderr]).to.deep.equal([
          1,
          `The URL leads to the server ${name}, or to a copy of it, which the installation has already${remedy}\n`,
        ]);
      }
    }
  });

  it('server add follows a server to another port, and takes a copy of it for no new server', async () => {
    await addSecond();
    const copy = await copyServer(second.url);
    const identity = async () =>
      (await controlSql(world, `select identity from servers where name = 'second'`))[0] as object;
    const before = await identity();

    const moved = await run(['server', 'add', 'second'], copy.url);
    expect(moved.code, moved.stderr).to.equal(0);
    const current = await withConnection(copy.url, readServerIdentity);
    expect(await identity())
      .to.deep.equal({ identity: current })
      .and.not.to.deep.equal(before);

    expect((await run(['server', 'add', 'second'], second.url)).code).to.equal(0);
    expect(await identity()).to.deep.equal(before);

    expect((await run(['server', 'add', 'third'], copy.url)).code).to.equal(1);
    await copy.close();
  });

  describe('whose system identifier has changed, as by pg_upgrade', () => {
    const identityOf = async (name: string) =>
      (
        await controlSql<{ identity: string }>(
          world,
          `select identity from servers where name = '${name}'`,
        )
      )[0]?.identity;
    /** Stores another identifier, as if the cluster had had it before. */
    const forget = () =>
      controlSql(world, `update servers set identity = '4711:5432' where name = 'second'`);

    beforeEach(async () => {
      await addSecond();
      await provision('upgraded', '--server', 'second');
    });

    it('is the same server under its name and address, and its identity is stored anew', async () => {
      await forget();

      const { code, stderr } = await run(['server', 'add', 'second'], second.url);

      expect(code, stderr).to.equal(0);
      expect(await identityOf('second')).to.equal(
        await withConnection(second.url, readServerIdentity),
      );
    });

    it('gets no second name, by its address or by the databases of tenants in it', async () => {
      const copy = await copyServer(second.url); // another address
      await forget();

      for (const url of [second.url, copy.url]) {
        const { code, stderr } = await run(['server', 'add', 'third'], url);

        expect(code).to.equal(1);
        expect(stderr).to.include('The URL leads to the server second');
        expect(stderr).to.include('bin/backoffice server add second');
      }
      await copy.close();
    });

    it('is the same server at another address by the databases of tenants in it, also closed ones', async () => {
      for (const closed of [false, true]) {
        if (closed) expect((await run(['suspend', 'upgraded', '--yes'])).code).to.equal(0);
        const copy = await copyServer(second.url);
        await forget();

        const { code, stderr } = await run(['server', 'add', 'second'], copy.url);

        expect(code, stderr).to.equal(0);
        expect(await identityOf('second')).to.equal(
          await withConnection(copy.url, readServerIdentity),
        );
        await forget();
        expect((await run(['server', 'add', 'second'], second.url)).code).to.equal(0);
        await copy.close();
      }
    });

    it('is another server when it has the databases of some of its tenants only, and the refusal names a missing one', async () => {
      await provision('absent', '--server', 'second');
      const [{ missing } = { missing: '' }] = await controlSql<{ missing: string }>(
        world,
        `select database_name as missing from tenants where slug = 'absent'`,
      );
      const copy = await copyServer(second.url);
      await withConnection(copy.url, client => client.query(`drop database "${missing}"`));
      await forget();

      const { code, stderr } = await run(['server', 'add', 'second'], copy.url);

      expect(code).to.equal(1);
      expect(stderr).to.include(`no database ${missing}`);
      await copy.close();
    });

    it('gets no second name when a database of its tenants has been restored into another server of the installation', async () => {
      const third = await startOwnServer('third', [...quickSettings], { isNew: true });
      expect((await run(['server', 'add', 'third'], third.url)).code).to.equal(0);
      const copied = await controlSql<{ database: string; guid: string }>(
        world,
        `select d.database_name as database, t.guid from tenant_databases d join tenants t on t.id = d.tenant_id
           join servers s on s.id = d.server_id where s.name = 'second' and d.state <> 'gone'`,
      );
      for (const { database, guid } of copied) {
        await withConnection(third.url, client => client.query(`create database "${database}"`));
        await withConnection(databaseUrl(third.url, database), client =>
          client.query(`create table tenant_identity as select '${guid}' as guid;
                        create table migrations (id integer, name text, digest text)`),
        );
      }
      const before = await identityOf('second');

      const { code, stderr } = await run(['server', 'add', 'second'], third.url);

      expect(code).to.equal(1);
      expect(stderr).to.include('The URL leads to the server third');
      expect(await identityOf('second')).to.equal(before);
      await third.close();
    });

    it('is another server when it has none of these, and the refusal says what to do', async () => {
      const empty = await startOwnServer('empty', [...quickSettings], { isNew: true });
      await forget();

      const { code, stderr } = await run(['server', 'add', 'second'], empty.url);

      expect(code).to.equal(1);
      expect(stderr).to.match(/none of the \d+ databases of tenants of second/);
      await empty.close();
    });

    it('its databases are no orphans under a second name, which an earlier build has accepted', async () => {
      await controlSql(
        world,
        `insert into servers (name, prefix, admin_url, address, identity)
         select 'third', prefix, admin_url, address, '4712:5432' from servers where name = 'second'`,
      );
      // The URL of `second` is sealed for its name.
      await controlSql(world, `update servers set name = 'other' where name = 'second'`);
      await controlSql(world, `update servers set name = 'second' where name = 'third'`);

      const { stdout } = await run(['doctor', '--json']);
      const { findings } = JSON.parse(stdout);

      const ofSecond = findings.filter(({ server }: { server: string }) => server === 'second');
      expect(JSON.stringify(ofSecond)).to.not.match(/drop database|drop role|orphan/);
      expect(ofSecond.map(({ check }: { check: string }) => check)).to.include('copied_database');
      expect(JSON.stringify(ofSecond)).to.include('bin/backoffice server remove second');
      await controlSql(world, `delete from servers where name = 'second'`);
      await controlSql(world, `update servers set name = 'second' where name = 'other'`);
      expect((await run(['purge', 'upgraded', '--dry-run'])).code).to.equal(1);
    });
  });

  it('a server that is down does not affect the tenants of other servers', async () => {
    const proxy = await startSilentProxy(second.url);
    const proxied = proxy.through(second.url);
    await addSecond(proxied);
    const far = await provision('far', '--server', 'second');
    expect(far.server).to.equal('second');
    const [onSecond, onDefault] = [await world.login(far), await world.login(world.acme)];
    expect((await onSecond.get(path)).body).to.have.length(3);
    expect((await onSecond.post(path, { Title: 'Far away' })).status).to.equal(201);
    // The service uses the address, which holds no login.
    const addresses = () =>
      controlSql(world, 'select address, identity from servers where address is not null');
    const address = proxied.replace(/\/\/.*@/, '//');
    const identity = await withConnection(second.url, readServerIdentity);
    expect(identity).to.match(/^\d+:\d+$/);
    expect(await addresses()).to.deep.equal([{ address, identity }]);
    expect((await onDefault.get(path)).body).to.have.length(3);

    await proxy.close();
    const unavailable = await eventually(async () => {
      const response = await onSecond.get(path, { 'Cache-Control': 'no-cache' });
      return response.status === 503 && response;
    });
    expect(unavailable).to.have.property('headers');
    for (let i = 0; i < 20; i++) expect((await onDefault.get(path)).status).to.equal(200);
    const ready = await fetch(`http://127.0.0.1:${world.service.managementPort}/health/ready`);
    expect(ready.status).to.equal(200);
  });

  it('server remove refuses a server with tenants, and removes one without them, with its template', async () => {
    await addSecond();
    await provision('far', '--server', 'second');
    const databases = () =>
      withConnection(second.url, async client => {
        const { rows } = await client.query(
          `select datname from pg_database where datname ~ '_(tenant|template)_'`,
        );
        return rows.length;
      });
    const json = async (...args: string[]) => JSON.parse((await run([...args, '--json'])).stdout);
    expect(await databases(), 'of the tenant, and the template').to.equal(2);
    const refused = await run(['server', 'remove', 'second', '--yes']);
    expect([refused.code, refused.stderr]).to.deep.equal([
      1,
      'Tenants are on second: far. Move them to other servers, and purge deleted ones: ' +
        'bin/backoffice server drain second\n',
    ]);
    await run(['delete', 'far', '--yes']);
    expect(
      (await run(['server', 'remove', 'second', '--yes'])).code,
      'the tenant is only deleted',
    ).to.equal(1);
    await run(['purge', 'far', '--yes']);
    expect(await databases(), 'the template').to.equal(1);

    const plan = { name: 'second', forgotten: 0, formerTenants: 0, left: [] };
    expect(await json('server', 'remove', 'second', '--dry-run')).to.deep.equal({
      ...plan,
      state: 'planned',
    });
    expect((await run(['server', 'remove', 'second'])).code, 'without --yes').to.equal(2);
    expect((await run(['server', 'remove', 'default', '--yes'])).stderr).to.match(
      /has the control database/,
    );
    expect(await json('server', 'remove', 'second', '--yes')).to.deep.equal({
      ...plan,
      state: 'removed',
    });
    expect(await databases()).to.equal(0);
    expect((await json('server', 'list')).map(({ name }: { name: string }) => name)).to.deep.equal([
      'default',
    ]);
    await addSecond();
  });

  it('a lost server is removed with the databases of tenants that nobody uses', async () => {
    await addSecond();
    const columns = 'tenant_id, server_id, database_name, role_name, state, origin';
    await controlSql(
      world,
      `insert into tenant_databases (${columns})
       select t.id, s.id, state || '_1', state || '_1', state, 'template'
         from tenants t, servers s, unnest(array['reserved', 'filled', 'kept', 'condemned', 'gone']) as state
        where slug = 'acme' and s.name = 'second'`,
    );

    const removed = await run(['server', 'remove', 'second', '--lost', '--yes', '--json']);
    expect(removed.code, removed.stderr).to.equal(0);
    expect(removed.stderr).to.equal('');
    expect(JSON.parse(removed.stdout)).to.include({
      state: 'removed',
      forgotten: 4,
      formerTenants: 1,
      left: null,
    });

    const { stdout, stderr } = await run(['databases', 'acme', '--json']);
    expect(stderr).to.equal('');
    expect(JSON.parse(stdout).map(({ state }: { state: string }) => state)).to.deep.equal([
      'current',
    ]);
  });
});
