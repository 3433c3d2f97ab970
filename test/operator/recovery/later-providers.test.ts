import { expect } from 'chai';
import { databaseUrl } from '../../../src/control/server-urls.ts';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { addSampleUser } from '../../accounts/auth/sample-users.ts';
import { expectProblem } from '../../accounts/people/people-world.ts';
import { newPerson, providersPath, signInWorld } from '../../accounts/providers/provider-world.ts';
import { startProvider } from '../../support/identity-provider.ts';
import { runCommand } from '../../support/run-command.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { use, useEach } from '../../support/use.ts';
import { createWorld, type TestTenant } from '../../support/world.ts';

const rule = { Role: 'Member', Scope: 'All', EntityId: null, Domains: ['a.example'], Claims: {} };

describe('providers in a restored control database', () => {
  const provider = use(startProvider);
  const world = useEach(() => createWorld({ TRUSTED_PROVIDERS: provider.trusted }));
  const signIns = signInWorld(world, provider);
  let later = '';

  /** Copies the control database as it is: what follows is known to the copy alone. */
  const makeLater = async (): Promise<void> => {
    const name = new URL(world.config.databaseUrl ?? '').pathname.slice(1);
    later = `${name}_later`;
    await withConnection(postgresUrl(), async client => {
      await client.query(`create database ${later} template control_template`);
    });
    const tables = ['tenants', 'roles', 'users', 'identity_providers', 'identities'];
    for (const table of tables) {
      const rows = await withConnection(databaseUrl(postgresUrl(), name), async client => {
        const found = await client.query<{ rows: string }>(
          `select coalesce(json_agg(t), '[]')::text as rows from ${table} t`,
        );
        return found.rows[0]?.rows;
      });
      await withConnection(databaseUrl(postgresUrl(), later), async client => {
        await client.query('set session_replication_role = replica');
        await client.query(
          `insert into ${table} overriding system value select * from json_populate_recordset(null::${table}, $1)`,
          [rows],
        );
      });
    }
  };
  const inLater = (text: string, values: unknown[] = []) =>
    withConnection(databaseUrl(postgresUrl(), later), client => client.query(text, values));
  const afterRestore = async (isReplayed: boolean) => {
    const { code, stdout, stderr } = await runCommand(
      'scripts/control.ts',
      ['after-restore', ...(isReplayed ? ['--replay'] : []), '--yes', '--json'],
      world.environment,
      isReplayed ? databaseUrl(postgresUrl(), later) : undefined,
    );
    expect(code, stderr).to.equal(0);
    return JSON.parse(stdout);
  };
  afterEach(() =>
    withConnection(postgresUrl(), client =>
      client.query(`drop database if exists ${later || 'no_later'} with (force)`),
    ),
  );

  const addLinked = async (tenant: TestTenant) => {
    const account = newPerson();
    const client = await world.login(tenant, await addSampleUser(world, tenant));
    return { account, id: await signIns.link(client, account) };
  };
  const exchange = async (
    { account }: { account: ReturnType<typeof newPerson> },
    tenant: TestTenant,
  ) => signIns.exchange(await provider.signIn(account), tenant);
  const providerOf = async (tenant: TestTenant) =>
    (await (await world.login(tenant)).get(providersPath)).body[0];

  it('providers and identities stay with a restore, and sessions end', async () => {
    await signIns.configure(world.acme, { CreatesUsers: rule });
    const linked = await addLinked(world.acme);
    const client = await signIns.signIn(linked.account);

    await afterRestore(false);

    expect((await client.get('/api/v1/auth/me')).status).to.equal(401);
    expect((await exchange(linked, world.acme)).status).to.equal(200);
    expect((await providerOf(world.acme)).CreatesUsers).to.deep.equal(rule);
  });

  it('an ID token of before a restore is refused, used or not, and one of after it is good', async () => {
    await signIns.configure(world.acme);
    await signIns.configure(world.globex);
    const linked = await addLinked(world.acme);
    const before = await provider.sign(
      provider.claims(linked.account.sub, { iat: Math.floor(Date.now() / 1000) - 5 }),
    );

    await afterRestore(false);

    expectProblem(await signIns.exchange(before), 401, 'invalid_id_token');
    expect((await exchange(linked, world.acme)).status).to.equal(200);
  });

  it('a restore with the later state gives back no provider, identity, client or rule that was taken away', async () => {
    await signIns.configure(world.acme, {
      ClientIds: [provider.clientIds[0], 'given-up'],
      CreatesUsers: rule,
      SecondFactor: 'always',
      SessionHours: 100,
    });
    const gone = await signIns.configure(world.globex);
    const [kept, unlinked, held, lost] = [
      await addLinked(world.acme),
      await addLinked(world.acme),
      await addLinked(world.acme),
      await addLinked(world.globex),
    ];
    await makeLater();
    await inLater('delete from identities where id = $1', [unlinked.id]);
    await inLater('update identities set held_at = now() where id = $1', [held.id]);
    await inLater('delete from identity_providers where id = $1', [gone.Id]);
    await inLater(
      `update identity_providers set client_ids = $1, second_factor = '{mfa}', session_hours = 5,
              creates_domains = '{b.example}'`,
      [[provider.clientIds[0], 'new-one']],
    );

    const { replayed } = await afterRestore(true);

    expect(replayed).to.include({
      providersRemoved: 1,
      providersNarrowed: 1,
      identitiesRemoved: 1,
    });
    expect(await providerOf(world.acme)).to.deep.include({
      ClientIds: [provider.clientIds[0]],
      SecondFactor: 'mfa',
      SessionHours: 5,
      CreatesUsers: null,
      IsEnabled: true,
    });
    expect((await exchange(kept, world.acme)).status).to.equal(200);
    expectProblem(await exchange(unlinked, world.acme), 401, 'invalid_id_token');
    expectProblem(await exchange(held, world.acme), 401, 'invalid_id_token');
    expectProblem(await exchange(lost, world.globex), 401, 'invalid_id_token');
  });

  it('a provider that was disabled later is disabled, and one that is as it was later is left alone', async () => {
    await signIns.configure(world.acme);
    await signIns.configure(world.globex, { CreatesUsers: rule });
    const [here, there] = [await addLinked(world.acme), await addLinked(world.globex)];
    await makeLater();
    await inLater('update identity_providers set is_enabled = false where tenant_id = $1', [
      world.acme.id,
    ]);

    const { replayed } = await afterRestore(true);

    expect(replayed).to.include({
      providersRemoved: 0,
      providersNarrowed: 1,
      identitiesRemoved: 0,
    });
    expectProblem(await exchange(here, world.acme), 401, 'invalid_id_token');
    expect((await exchange(there, world.globex)).status).to.equal(200);
    expect((await providerOf(world.globex)).CreatesUsers).to.deep.equal(rule);
  });
});
