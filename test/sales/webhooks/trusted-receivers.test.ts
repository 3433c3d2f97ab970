import { expect } from 'chai';
import type { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { runCommand } from '../../support/run-command.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld, sql, type TestTenant } from '../../support/world.ts';
import { readWorldTemplate } from '../../support/world-template.ts';
import { startReceiver } from './receiver.ts';

const path = '/api/v1/Webhooks';
const secret = 'a trace with the password hunter2';

describe('receivers that the operator trusts', () => {
  const receiver = use(startReceiver);
  const trusting = () => {
    const acme = readWorldTemplate().tenants.filter(({ slug }) => slug === 'acme');
    return createWorld({ WEBHOOK_TRUSTED_RECEIVERS: receiver.trustedBy(acme, '/acme') });
  };
  const world = use(trusting);

  /** Returns the newest attempt of a webhook, once there is one that `isWanted` accepts. */
  const attemptOf = (
    client: Client,
    id: number,
    isWanted = (_: { Error: string | null }) => true,
  ) =>
    eventually(async () => {
      const { body } = await client.get(`${path}/${id}/Deliveries`);
      return body[0] && isWanted(body[0]) && body[0];
    });

  it('an exception for one tenant is refused to another tenant, at another path, and with a path in disguise', async () => {
    const earlier = receiver.messages.length;
    const [acme, globex] = await Promise.all(
      [world.acme, world.globex].map(tenant => world.login(tenant)),
    );
    const refusals: [Client, string][] = [
      [globex!, '/acme'],
      [globex!, '/admin/reset?all=1'],
      [acme!, '/admin/reset?all=1'],
      [acme!, '/acmex'],
      [acme!, '/acme/../admin'],
      [acme!, '/acme/%2e%2e/admin'],
      [acme!, '/acme/..%2fadmin'],
      [acme!, '/acme\\..\\admin'],
      [acme!, '/?/acme'],
    ];

    for (const [client, to] of refusals) {
      const { status, body } = await client.post(path, { Url: receiver.url(to) });
      expect(status, to).to.equal(400);
      expect(Object.keys(body.errors), to).to.deep.equal(['Url']);
    }
    const { body: made } = await acme!.post(path, { Url: receiver.url('/acme/orders?x=1') });
    expect(made.Id).to.be.a('number');
    const moved = await acme!.put(`${path}/${made.Id}`, { Url: receiver.url('/admin') });
    expect(moved.status).to.equal(400);

    // A URL that stands in a tenant's database all the same, as after a restore, gets nothing.
    const { body: other } = await globex!.post(path, { Url: 'https://hooks.example.com/' });
    await sql(world.globex, 'update webhooks set url = $1, version = version + 1', [
      receiver.url('/acme'),
    ]);
    expect((await globex!.post(`${path}/${other.Id}/test`)).status).to.equal(202);
    expect(await attemptOf(globex!, other.Id)).to.include({
      Error: 'refused address',
      Status: null,
      Response: null,
    });
    expect(receiver.messages).to.have.length(earlier);
    await acme!.delete(`${path}/${made.Id}`);
  });

  it('no text of a response of a trusted receiver is stored or shown, and its status is', async () => {
    const client = await world.login(world.acme);
    for (const status of [200, 302, 500]) {
      receiver.respond(`/acme/${status}`, response =>
        response.writeHead(status, { Location: `/${secret}`, 'X-Trace': secret }).end(secret),
      );
      const { body } = await client.post(path, { Url: receiver.url(`/acme/${status}`) });
      const sent = await client.post(`${path}/${body.Id}/test`);
      expect(sent.status).to.equal(202);

      const attempt = await attemptOf(client, body.Id);
      expect(attempt).to.include({ Status: status, Response: null });
      expect(receiver.at(`/acme/${status}`), 'a redirect is not followed').to.have.length(1);
    }

    // An attempt for a change, which fails, and which operators then see.
    expect((await client.post('/api/v1/OrderStatuses', { Name: 'Failing' })).status).to.equal(201);
    const health = await eventually(async () => {
      const { stdout } = await runCommand(
        'scripts/tenant.ts',
        ['webhooks', 'acme', '--json'],
        world.environment,
      );
      return /"state": ?"failing"/.test(stdout) && stdout;
    });

    const texts = [
      health,
      world.logs.join(''),
      JSON.stringify((await client.get('/api/v1/AuditLog?limit=100')).body),
      JSON.stringify((await client.get(path)).body),
      JSON.stringify(await sql(world.acme, 'select * from webhook_deliveries')),
      JSON.stringify(await sql(world.acme, 'select * from webhook_messages')),
      JSON.stringify(await controlSql(world, 'select * from webhook_tenants')),
    ];
    for (const text of texts) expect(text).not.to.include('hunter2');
  });

  describe('an exception that ends', () => {
    const world = use(trusting);

    it('when an exception ends, its webhook gets nothing more, and says why', async () => {
      receiver.respond('/acme/ended', response => response.writeHead(204).end());
      const before = await world.login(world.acme);
      const { body } = await before.post(path, { Url: receiver.url('/acme/ended') });
      await before.post(`${path}/${body.Id}/test`);
      expect(await attemptOf(before, body.Id)).to.include({ Error: null });

      await world.service.stop();
      const other: TestTenant = world.globex;
      const { url } = await world.startAnotherServer({
        WEBHOOK_TRUSTED_RECEIVERS: receiver.trustedBy([other], '/acme'),
      });
      const client = before.at(url);
      const arrived = receiver.at('/acme/ended').length;
      expect((await client.post(`${path}/${body.Id}/test`)).status).to.equal(202);

      const attempt = await attemptOf(client, body.Id, attempt => attempt.Error !== null);
      expect(attempt).to.include({ Error: 'refused address', Status: null, Response: null });
      expect(receiver.at('/acme/ended')).to.have.length(arrived);
      const kept = await client.put(`${path}/${body.Id}`, { Url: receiver.url('/acme/ended') });
      expect(kept.status).to.equal(400);
    });
  });
});
