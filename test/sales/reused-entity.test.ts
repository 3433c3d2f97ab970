import { expect } from 'chai';
import { permissions } from '../../src/control/permissions.ts';
import type { Client } from '../support/client.ts';
import { runCommand } from '../support/run-command.ts';
import { controlSql, sql, useLogin, useWorld } from '../support/world.ts';

describe('a user whose entity another one has replaced under the same number', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  const globex = useLogin(world, 'globex');
  let member: Client;
  let one: number;
  let email: string;
  let promotion: number;

  const paths = (): string[] => [
    '/api/v1/Entities',
    '/api/v1/Activity',
    '/api/v1/Activity?sort=Id&limit=10',
    '/api/v1/AuditLog',
    '/api/v1/AuditLog?resource=Entity',
    '/api/v1/AuditLog?resource=User',
    '/api/v1/Changes?include=record',
    '/api/v1/Promotions',
    '/api/v1/Users',
    `/api/v1/Entities/${one}`,
    `/api/v1/Promotions/${promotion}`,
    `/api/v1/Promotions/${promotion}/entity/${one}/used`,
  ];
  /** Replaces the entity, as a failover without the last commits and a new entity do. */
  const replaceEntity = async (): Promise<void> => {
    await sql(world.acme, `delete from entities where id = ${one}`);
    await sql(world.acme, `select setval('entities_id_seq', ${one}, false)`);
    const { body } = await admin.post('/api/v1/Entities', {
      Name: 'Competitor Two zzsecret',
      EntityType: 'customer',
    });
    expect(body.Id).to.equal(one);
  };

  let made = 0;
  beforeEach(async () => {
    made++;
    const created = await admin.post('/api/v1/Entities', { Name: 'One', EntityType: 'supplier' });
    one = created.body.Id;
    member = await world.loginAs(world.acme, {
      permissions: permissions.filter(name => name !== 'users.manage'),
      scope: 'Self',
      entityId: one,
    });
    const rows = await controlSql<{ email: string }>(
      world,
      `select email from users where entity_id = ? and tenant_id = ?`,
      [one, world.acme.id],
    );
    email = rows[0]?.email ?? '';
    expect((await member.get(`/api/v1/Entities/${one}`)).body.Name).to.equal('One');

    await replaceEntity();
    await admin.post('/api/v1/Activity', {
      ActivityCode: 1,
      EntityId: one,
      Comment: 'zzsecret',
    });
    const promoted = await admin.post('/api/v1/Promotions', {
      PromoCode: `ZZSECRET${made}`,
      Name: 'zzsecret',
      DiscountType: 'Percentage',
      DiscountValue: 5,
      EntityIds: [one],
    });
    promotion = promoted.body.Id;
    await admin.post(`/api/v1/Promotions/${promotion}/entity/${one}/used`);
    await admin.post('/api/v1/Users', {
      Email: `zzsecret${made}@acme.test`,
      FirstName: 'zzsecret',
      LastName: 'Two',
      Role: 'Member',
      Scope: 'Self',
      EntityId: one,
    });
  });

  afterEach(() =>
    controlSql(world, `delete from users where scope = 'Self' and tenant_id = ?`, [world.acme.id]),
  );

  it('the user reads nothing of the new entity, by no path', async () => {
    for (const path of paths()) {
      const { body } = await member.get(path, { 'Cache-Control': 'no-cache' });

      expect(JSON.stringify(body), path).not.to.match(/zzsecret/i);
    }
  });

  it('the user of the new entity reads it by each of these paths', async () => {
    const own = await world.loginAs(world.acme, {
      permissions: permissions.filter(name => name !== 'users.manage'),
      scope: 'Self',
      entityId: one,
    });

    for (const path of paths()) {
      const { status, body } = await own.get(path, { 'Cache-Control': 'no-cache' });

      expect(status, path).to.equal(200);
      const isOfUse = path.endsWith('/used');
      if (!isOfUse) expect(JSON.stringify(body), path).to.match(/zzsecret/i);
    }
  });

  it('the user changes nothing of the new entity, and records nothing about it', async () => {
    const renamed = await member.patch(`/api/v1/Entities/${one}`, { Name: 'Mine' });
    const used = await member.post(`/api/v1/Promotions/${promotion}/entity/${one}/used`);
    const recorded = await member.post('/api/v1/Activity', { ActivityCode: 2, EntityId: one });

    expect(renamed.status).to.equal(404);
    expect(used.status).to.equal(404);
    expect(recorded.status).to.equal(201);
    expect(recorded.body.EntityId).to.equal(null);
  });

  it('a stream of the user ends before a change of the new entity', async () => {
    const authorization = `Bearer ${member.tokens?.accessToken}`;
    const stream = await fetch(`${world.url}/api/v1/Changes/stream`, {
      headers: { Authorization: authorization },
    });
    const received = stream.text();

    await admin.post('/api/v1/Activity', { ActivityCode: 3, EntityId: one, Comment: 'zzsecret' });

    expect(await received).to.include('"access_changed"');
    expect(await received).not.to.include(`"Resource":"Activity"`);
  });

  it('doctor names the user, and no user whose entity is there', async () => {
    const entity = await globex.post('/api/v1/Entities', { Name: 'There', EntityType: 'customer' });
    await world.loginAs(world.globex, { scope: 'Self', entityId: entity.body.Id });

    const { stdout } = await runCommand(
      'scripts/tenant.ts',
      ['doctor', '--json'],
      world.environment,
    );

    const findings = JSON.parse(stdout).findings.filter(
      ({ check }: { check: string }) => check === 'users_without_entity',
    );
    expect(findings).to.have.length(1);
    expect(findings[0].tenant).to.equal('acme');
    expect(findings[0].problem).to.include(email);
    expect(findings[0].remedy).to.include(`bin/backoffice user disable acme ${email}`);
  });

  it('users of the new entity see neither the user nor the audit entries of the user', async () => {
    const own = await world.loginAs(world.acme, {
      permissions: ['full.read', 'users.read'],
      scope: 'Self',
      entityId: one,
    });
    const ofUsers = '/api/v1/AuditLog?resource=User&limit=1000';

    const { body: people } = await own.get('/api/v1/Users');
    const { body: entries } = await own.get(ofUsers);

    const { Id } = await findMember();
    expect(people.map((each: { Id: number }) => each.Id)).not.to.include(Id);
    expect((await own.get(`/api/v1/Users/${Id}`)).status).to.equal(404);
    const keys = (list: { Key: string }[]) => list.map(({ Key }) => Key);
    expect(keys((await admin.get(ofUsers)).body)).to.include(String(Id));
    expect(keys(entries)).to.not.be.empty.and.not.include(String(Id));
  });

  it('an edit or an invitation that repeats the number gives nobody the new entity, until an administrator takes the lost one away', async () => {
    const user = await findMember();
    const edit = (change: object) => admin.put(`/api/v1/Users/${user.Id}`, { ...user, ...change });
    const invite = (EntityId: number | null) => admin.post('/api/v1/Users', { ...guest, EntityId });
    const guest = {
      Email: 'guest@acme.test',
      FirstName: 'Guest',
      LastName: 'x',
      Role: 'Member',
      Scope: 'Self',
    };
    expect((await invite(one)).status).to.equal(201);
    await controlSql(
      world,
      `update users set entity_since = entity_since - interval '1 second' where email = ?`,
      [guest.Email],
    );

    for (const refused of [
      await edit({ LastName: 'Corrected' }),
      await edit({ LastName: '' }),
      await invite(one),
    ]) {
      expect(refused.status, JSON.stringify(refused.body)).to.equal(400);
      expect(refused.body.errorCodes.EntityId).to.deep.equal([{ code: 'ambiguous' }]);
    }
    expect((await member.get(`/api/v1/Entities/${one}`)).status).to.equal(404);

    expect((await invite(null)).status).to.equal(201);
    expect((await invite(one)).status).to.equal(201);
    expect((await edit({ EntityId: null })).status).to.equal(200);
    expect((await edit({ EntityId: one })).status).to.equal(200);
    const again = await world.loginAs(world.acme, {
      permissions: ['users.read'],
      scope: 'Self',
      entityId: one,
    });
    const { body: people } = await again.get('/api/v1/Users');
    expect(people.map((each: { Email: string }) => each.Email)).to.include.members([
      email,
      guest.Email,
    ]);
  });

  /** Returns the user, as an administrator reads it. */
  async function findMember(): Promise<{ Id: number }> {
    const { body } = await admin.get(`/api/v1/Users?filter[Email]=${email}`);
    return body[0];
  }
});
