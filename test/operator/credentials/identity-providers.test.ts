import { expect } from 'chai';
import type { ProviderSummary } from '../../../src/operator/credentials/identity-providers.ts';
import { diagnose } from '../../../src/operator/doctor/doctor.ts';
import { addSampleUser } from '../../accounts/auth/sample-users.ts';
import { newPerson, providersPath, signInWorld } from '../../accounts/providers/provider-world.ts';
import { announcedMs, eventually } from '../../support/eventually.ts';
import { startProvider } from '../../support/identity-provider.ts';
import { runCommand } from '../../support/run-command.ts';
import { use, useEach } from '../../support/use.ts';
import { controlSql, createWorld } from '../../support/world.ts';

describe('identity-provider', () => {
  const provider = use(startProvider);
  const world = useEach(() => createWorld({ TRUSTED_PROVIDERS: provider.trusted }));
  const signIns = signInWorld(world, provider);

  afterEach(() => provider.answer(undefined));

  const run = (...args: string[]) =>
    runCommand('scripts/backoffice.ts', ['identity-provider', ...args], world.environment);
  async function json<Document>(...args: string[]): Promise<Document> {
    const { code, stdout, stderr } = await run(...args, '--json');
    expect({ code, stderr }, args.join(' ')).to.deep.equal({ code: 0, stderr: '' });
    return JSON.parse(stdout) as Document;
  }
  const readProvider = async (slug = 'acme') => (await json<ProviderSummary[]>('list', slug))[0];
  /** Adds a person who has linked an account, and has logged in by it. */
  const addLinked = async () => {
    const user = await addSampleUser(world, world.acme);
    const account = newPerson();
    await signIns.link(await world.login(world.acme, user), account);
    return { user, client: await signIns.signIn(account) };
  };

  it('an operator lists the providers of a tenant, and disables one, which ends its sessions', async () => {
    const { Id, Guid } = await signIns.configure(world.acme);
    const other = await signIns.configure(world.globex);
    const { client } = await addLinked();
    const { user } = await addLinked();
    await controlSql(world, `update users set password_hash = 'none' where id = ?`, [user.id]);

    const listed = await eventually(async () => {
      const found = await readProvider();
      return found?.reachedAt ? found : undefined;
    });
    expect(listed).to.include({
      id: Id,
      guid: Guid,
      name: 'Staff',
      issuer: provider.issuer,
      state: 'enabled',
      people: 2,
      withoutPassword: 1,
      failure: null,
    });

    const plan = await run('disable', 'acme', String(Id), '--dry-run');
    expect(plan.stdout).to.include('which 2 accounts can use');
    expect((await client.get('/api/v1/auth/me')).status).to.equal(200);

    const done = await run('disable', 'acme', String(Id), '--yes');
    expect(done.code, done.stderr).to.equal(0);
    expect(done.stdout).to.include('1 account of them has no password');
    await eventually(async () => (await client.get('/api/v1/auth/me')).status === 401, announcedMs);
    expect((await readProvider())?.state).to.equal('disabled');
    expect((await readProvider('globex'))?.state).to.equal('enabled');

    const foreign = await run('disable', 'acme', String(other.Id), '--yes');
    expect(foreign.code).to.not.equal(0);
    expect(foreign.stderr).to.include('identity-provider list acme');
  });

  it('a purge removes the providers of a tenant with its identities, and none of another tenant', async () => {
    const gone = await world.provision('gone');
    await signIns.configure(world.acme);
    const [row] = await controlSql<{ id: string }>(
      world,
      `insert into identity_providers (
         tenant_id, name, issuer, client_ids, creates_role_id, creates_scope, creates_domains,
         creates_claims, creates_permissions)
       select tenant_id, 'Staff', 'https://login.example.com', '{one}', id, 'All', '{a.example}', '{}', '{}'
         from roles where tenant_id = ? limit 1 returning id`,
      [gone.id],
    );
    await controlSql(
      world,
      `insert into identities (tenant_id, user_id, provider_id, subject)
       select tenant_id, id, ?, 'one' from users where tenant_id = ?`,
      [row?.id, gone.id],
    );
    await controlSql(
      world,
      'insert into provider_states (provider_id, reached_at) values (?, now())',
      [row?.id],
    );

    for (const verb of ['delete', 'purge']) {
      const args = [verb, 'gone', '--yes'];
      const { code, stderr } = await runCommand('scripts/backoffice.ts', args, world.environment);
      expect(code, stderr).to.equal(0);
    }

    const left = await controlSql<{ tenant_id: string }>(
      world,
      'select tenant_id from identity_providers union all select tenant_id from identities',
    );
    expect(left.map(({ tenant_id }) => Number(tenant_id))).to.deep.equal([world.acme.id]);
  });

  it('a clone has no provider of its source, and no identity or rule of sign-in', async () => {
    await signIns.configure(world.acme);
    await addLinked();

    const { email } = world.acme.admin;
    const { code, stdout, stderr } = await runCommand(
      'scripts/tenant.ts',
      ['clone', 'acme', 'copy', '--login', email, '--json'],
      world.environment,
    );

    expect(code, stderr).to.equal(0);
    const { id } = JSON.parse(stdout);
    for (const table of ['identity_providers', 'identities', 'sign_in_rules']) {
      const rows = await controlSql(world, `select from ${table} where tenant_id = ?`, [id]);
      expect(rows, table).to.deep.equal([]);
    }
    const ofSource = await controlSql(world, 'select from identities where tenant_id = ?', [
      world.acme.id,
    ]);
    expect(ofSource).to.have.length(1);
  });

  it('doctor names a provider that no process has reached for an hour, until one reaches it', async () => {
    const { Id } = await signIns.configure(world.acme);
    const { user } = await addLinked();
    provider.answer('error');
    const { url } = await world.startAnotherServer();
    const account = newPerson();
    const failed = await signIns.exchange(await provider.signIn(account), world.acme, url);
    expect(failed.status).to.equal(503);
    const admin = await world.login(world.acme);
    const read = async () => (await admin.get(`${providersPath}/${Id}`)).body;
    await eventually(async () => (await read()).Failure === 'status');
    const found = async () =>
      (await diagnose(world.installation, { controlOnly: true })).findings.filter(
        ({ check }) => check === 'provider_unreachable',
      );
    expect(await found(), 'in the first hour').to.deep.equal([]);

    await controlSql(
      world,
      `update provider_states set failing_since = failing_since - interval '61 minutes'`,
    );
    const [finding, ...others] = await found();
    expect(others).to.deep.equal([]);
    expect(finding).to.include({ tenant: 'acme', severity: 'warning' });
    expect(finding?.problem).to.include(`Staff (${Id}) of acme`);

    provider.answer(undefined);
    const third = await world.startAnotherServer();
    await signIns.exchange(await provider.signIn(account), world.acme, third.url);
    await eventually(async () => (await read()).Failure === null);
    expect(await found()).to.deep.equal([]);
    expect((await world.login(world.acme, user)).tokens).to.be.an('object');
  });
});
