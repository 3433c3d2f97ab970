import { expect } from 'chai';
import { TwoServers } from '../../support/two-servers.ts';
import { controlSql } from '../../support/world.ts';

describe('a control database that has lost its last commits', () => {
  let servers: TwoServers;

  before(async () => {
    servers = await TwoServers.start({});
  });
  after(() => servers?.close());

  /**
   * Takes the exchange of the last move back, as in a standby that was promoted before it had
   * received that commit.
   * @param reserved the row of the new database, as it was before the exchange
   */
  const loseExchange = async (reserved: string): Promise<void> => {
    const ofAcme = `tenant_id = (select id from tenants where slug = 'acme')`;
    await controlSql(
      servers.world,
      `update tenant_databases set ${reserved}, current_since = null, schema_version = null,
              compatible_from = null, schema_fingerprint = null
        where ${ofAcme} and state = 'current'`,
    );
    await controlSql(
      servers.world,
      `update tenant_databases set state = 'current', kept_by = null, keep_until = null, current_since = now()
        where id = (select id from tenant_databases
                     where ${ofAcme} and state = 'kept' order by upper(current_during) desc limit 1)`,
    );
    await controlSql(
      servers.world,
      `update tenants t set server_id = d.server_id, database_name = d.database_name, role_name = d.role_name,
              role_password = d.role_password, updated_at = now()
         from tenant_databases d
        where d.tenant_id = t.id and d.state = 'current' and t.slug = 'acme'`,
    );
  };

  for (const [name, reserved, hasFence] of [
    ['reserved', `state = 'reserved'`, false],
    ['reserved, with the fence', `state = 'reserved'`, true],
    ['to be dropped', `state = 'condemned'`, false],
  ] as const) {
    it(`no command serves the former database of a tenant or drops the newer one, which is ${name}, and a swap puts that in place`, async () => {
      const { world } = servers;
      const admin = await world.login(world.acme);
      const from = await servers.serverOf();
      const to = await servers.otherServer();
      const { newDatabase } = await servers.move('acme', '--to', to);
      const written = await admin.post('/api/v1/EntityStatus', { Title: `after, ${name}` });
      expect(written.status).to.equal(201);

      await loseExchange(reserved);
      if (hasFence) {
        await controlSql(
          world,
          `insert into tenant_fences (tenant_guid, id, closed) values ('${world.acme.guid}', gen_random_uuid(), true)`,
        );
      }

      expect(await servers.serverOf()).to.equal(from);
      for (const command of [
        ['databases', 'prune', 'acme'],
        ['move', 'acme', '--to', to],
        ['databases', 'prune', 'acme'],
      ]) {
        const { code, stderr } = await servers.run(command);
        expect(code, `${command.join(' ')}: ${stderr}`).to.equal(1);
        expect(stderr).to.include(`bin/backoffice restore swap acme --database ${newDatabase}`);
        // Behind a fence, a request would wait for its end first.
        if (!hasFence) expect((await admin.get('/api/v1/EntityStatus')).status).to.equal(503);
      }

      await servers.runWell(['restore', 'swap', 'acme', '--database', newDatabase, '--yes']);

      expect(await servers.serverOf()).to.equal(to);
      const { status, body } = await admin.get(`/api/v1/EntityStatus/${written.body.Id}`);
      expect([status, body.Title]).to.deep.equal([200, `after, ${name}`]);
      const again = await admin.post('/api/v1/EntityStatus', { Title: `again, ${name}` });
      expect(again.status).to.equal(201);
      const globex = await world.login(world.globex);
      expect((await globex.get('/api/v1/EntityStatus')).status).to.equal(200);
    });
  }
});
