import { expect } from 'chai';
import { Server } from '../../../src/control/control-entities.ts';
import { owners } from '../../../src/control/secret-box.ts';
import { serverAddressUrl } from '../../../src/control/server-urls.ts';
import { runCommand } from '../../support/run-command.ts';
import { type SilentProxy, startSilentProxy } from '../../support/silent-proxy.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { controlSql, createWorld, sql, type World } from '../../support/world.ts';

describe('undelete of a tenant', () => {
  let world: World;
  let proxy: SilentProxy;

  const run = (...args: string[]) => runCommand('scripts/tenant.ts', args, world.environment);
  const control = (text: string) => controlSql(world, text);
  const undelete = async (slug: string) => {
    expect((await run('delete', slug, '--yes')).code).to.equal(0);
    const { code, stdout, stderr } = await run('undelete', slug);
    expect(
      [code, await control(`select status from tenants where slug = '${slug}'`)],
      stderr,
    ).to.deep.equal([0, [{ status: 'active' }]]);
    const again = await run('undelete', slug, '--json');
    return { stdout, stderr, isDatabaseLost: JSON.parse(again.stdout).isDatabaseLost };
  };

  before(async () => {
    [world, proxy] = await Promise.all([createWorld(), startSilentProxy()]);
  });
  after(async () => {
    await world.close();
    await proxy.close();
  });

  it('undelete names the command that restores the database of the tenant, if that is missing', async () => {
    const lost =
      'acme is active, but it is not served: its database does not exist or is incomplete. ' +
      'Restore it: bin/backoffice restore acme --lost\n';

    expect(await undelete('acme')).to.deep.equal({
      stdout: 'acme is active.\n',
      stderr: '',
      isDatabaseLost: false,
    });

    await sql(world.globex, `drop database "${world.acme.database}" with (force)`);
    expect(await undelete('acme')).to.deep.equal({
      stdout: lost,
      stderr: '',
      isDatabaseLost: true,
    });

    expect((await undelete('globex')).stdout).to.equal('globex is active.\n');
  });

  it('restore without the data to restore is wrong usage, which names undelete', async () => {
    expect((await run('delete', 'globex', '--yes')).code).to.equal(0);

    const { code, stderr } = await run('restore', 'globex');

    expect(code).to.equal(2);
    expect(stderr).to.include('bin/backoffice undelete globex');
    expect((await run('undelete', 'globex')).code).to.equal(0);
  });

  it('undelete succeeds with a warning while the server of the tenant does not respond', async () => {
    const url = proxy.through(postgresUrl());
    const { secrets } = world.installation;
    const { em } = world.control;
    const { prefix } = await em.fork().findOneOrFail(Server, { name: 'default' });

    const adminUrl = secrets.seal(url, owners.serverUrl('quiet'));
    await em
      .fork()
      .insert(Server, { name: 'quiet', prefix, adminUrl, address: serverAddressUrl(url) });

    await control(
      `update tenants set server_id = (select id from servers where name = 'quiet') where slug = 'globex'`,
    );
    proxy.silence(new URL(url).pathname.slice(1));

    const { stdout, stderr, isDatabaseLost } = await undelete('globex');
    expect(stdout).to.equal('globex is active.\n');
    expect(isDatabaseLost).to.equal(null);
    expect(stderr).to.match(/^Warning: .*quiet.* bin\/backoffice doctor\n$/);
  });
});
