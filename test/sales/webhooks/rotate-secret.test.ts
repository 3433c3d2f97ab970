import { randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { backupSettings } from '../../support/backup-settings.ts';
import type { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { useServerFolder } from '../../support/server-folder.ts';
import { backUp, succeed } from '../../support/succeed.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld, sql, type TestTenant } from '../../support/world.ts';
import { type ReceivedMessage, startReceiver, verify } from './receiver.ts';

const path = '/api/v1/Webhooks';

describe('the secrets of a webhook', () => {
  const receiver = use(startReceiver);
  const world = use(() => createWorld({ WEBHOOK_TRUSTED_RECEIVERS: receiver.trusted }));

  const folder = useServerFolder('rotated-archives');

  let made = 0;
  /** Makes a webhook of its own path, and returns functions that use it. */
  async function createWebhook(client: Client) {
    const at = `/rotated/${++made}`;
    const { status, body } = await client.post(path, { Url: receiver.url(at) });
    expect(status).to.equal(201);
    const { Id: id, Secret: secret } = body;

    const rotate = async (query = '', headers: Record<string, string> = {}) => {
      const response = await client.post(`${path}/${id}/rotate${query}`, undefined, headers);
      expect(response.status, JSON.stringify(response.body)).to.equal(200);
      return response.body as { Secret: string; PreviousUntil: string | null };
    };
    /** Returns a message that is sent now. */
    const send = async (): Promise<ReceivedMessage> => {
      const sent = await client.post(`${path}/${id}/test`);
      expect(sent.status).to.equal(202);
      return eventually(() => receiver.at(at).find(each => each.id === sent.body.MessageId));
    };
    const read = async () => (await client.get(`${path}/${id}`)).body;

    return { id: id as number, secret: secret as string, rotate, send, read, at };
  }

  /**
   * Lets the times of the former secrets end earlier: the clock of the world would also end
   * tokens, and the library takes no message with a time of tomorrow.
   */
  const passMinutes = (tenant: TestTenant, id: number, minutes: number) =>
    sql(
      tenant,
      `update webhook_secrets set previous_until = array(
         select until - make_interval(mins => $2)
           from unnest(previous_until) with ordinality as each (until, place) order by place)
        where webhook_id = $1`,
      [id, minutes],
    );

  /** Checks that these secrets sign a message, in this order, and no others. */
  function expectSigned(message: ReceivedMessage, secrets: readonly string[]): void {
    const signatures = message.headers['webhook-signature']?.split(' ') ?? [];
    expect(signatures).to.have.length(secrets.length);
    for (const [index, secret] of secrets.entries()) {
      const headers = { ...message.headers, 'webhook-signature': signatures[index] as string };
      verify(secret, { ...message, headers });
    }
  }

  it('a rotation takes no time from the former secrets: each signs until its own 24 hours end, the newest first', async () => {
    const { acme } = world;
    const webhook = await createWebhook(await world.login(acme));
    expect((await webhook.read()).PreviousUntil).to.equal(null);
    expectSigned(await webhook.send(), [webhook.secret]);

    const second = await webhook.rotate();
    await passMinutes(acme, webhook.id, 60);
    const third = await webhook.rotate();
    expectSigned(await webhook.send(), [third.Secret, second.Secret, webhook.secret]);
    expect((await webhook.read()).PreviousUntil).to.equal(third.PreviousUntil);

    // The first secret was replaced an hour before the second one.
    await passMinutes(acme, webhook.id, 23 * 60 + 30);
    expectSigned(await webhook.send(), [third.Secret, second.Secret]);
    await passMinutes(acme, webhook.id, 60);
    expectSigned(await webhook.send(), [third.Secret]);
  });

  it('the record of a webhook has no PreviousUntil once the last former secret has ended', async () => {
    const client = await world.login(world.globex);
    const webhook = await createWebhook(client);
    await webhook.rotate();
    const { PreviousUntil } = (await client.get(`${path}?filter[Id]=${webhook.id}`)).body[0];
    expect(PreviousUntil).to.be.a('string');

    await passMinutes(world.globex, webhook.id, 24 * 60 + 1);
    expect((await webhook.read()).PreviousUntil).to.equal(null);
  });

  it('a sixth rotation within 24 hours is 400 with the time at which the oldest secret ends, and is possible then', async () => {
    const client = await world.login(world.acme);
    const webhook = await createWebhook(client);
    const first = await webhook.rotate();
    const secrets = [first.Secret, webhook.secret];
    for (let rotation = 2; rotation <= 5; rotation++) {
      await passMinutes(world.acme, webhook.id, 10);
      secrets.unshift((await webhook.rotate()).Secret);
    }

    const refused = await client.post(`${path}/${webhook.id}/rotate`);
    expect(refused.status).to.equal(400);
    expect(refused.body.code).to.equal('limit_reached');
    const ends = new Date(Date.parse(first.PreviousUntil ?? '') - 40 * 60_000).toISOString();
    expect(refused.body.detail).to.include(ends).and.include('endPrevious=true');
    expectSigned(await webhook.send(), secrets);

    await passMinutes(world.acme, webhook.id, 24 * 60 - 35);
    const next = await webhook.rotate();
    expectSigned(await webhook.send(), [next.Secret, ...secrets.slice(0, 5)]);
  });

  it('endPrevious ends all former secrets at once, also the one that it replaces, and none of another webhook or tenant', async () => {
    const [acme, globex] = await Promise.all(
      [world.acme, world.globex].map(tenant => world.login(tenant)),
    );
    const [webhook, beside, other] = [
      await createWebhook(acme!),
      await createWebhook(acme!),
      await createWebhook(globex!),
    ];
    for (let rotation = 1; rotation <= 5; rotation++) await webhook.rotate();
    const [ofBeside, ofOther] = [await beside.rotate(), await other.rotate()];

    const ended = await webhook.rotate('?endPrevious=true');
    expect(ended.PreviousUntil).to.equal(null);
    expect((await webhook.read()).PreviousUntil).to.equal(null);
    expectSigned(await webhook.send(), [ended.Secret]);
    expectSigned(await beside.send(), [ofBeside.Secret, beside.secret]);
    expectSigned(await other.send(), [ofOther.Secret, other.secret]);

    const after = await webhook.rotate('?endPrevious=false');
    expectSigned(await webhook.send(), [after.Secret, ended.Secret]);

    const wrong = await acme!.post(`${path}/${webhook.id}/rotate?endPrevious=now`);
    expect(wrong.status).to.equal(400);
  });

  it('a message that the receiver has refused is sent again, signed with the new secret alone after endPrevious', async () => {
    const client = await world.login(world.acme);
    const webhook = await createWebhook(client);
    const { at } = webhook;
    receiver.respond(at, response => response.writeHead(401).end());
    expect((await client.post('/api/v1/OrderStatuses', { Name: 'Refused' })).status).to.equal(201);
    await eventually(async () => (await webhook.read()).FailingSince !== null);
    const [refused] = receiver.at(at);
    expectSigned(refused!, [webhook.secret]);

    receiver.respond(at, response => response.writeHead(204).end());
    const { Secret } = await webhook.rotate('?endPrevious=true');
    const repeated = await eventually(() => receiver.at(at)[1]);
    expect(repeated.id).to.equal(refused!.id);
    expectSigned(repeated, [Secret]);
    await client.delete(`${path}/${webhook.id}`);
  });

  it('a repeated rotation returns the same secret, and the audit log, lists and logs have none, in any form', async () => {
    const client = await world.login(world.acme);
    const webhook = await createWebhook(client);
    const key = { 'Idempotency-Key': randomUUID() };
    const once = await webhook.rotate('', key);
    expect(await webhook.rotate('', key)).to.deep.equal(once);
    const ended = await webhook.rotate('?endPrevious=true');
    const last = await webhook.rotate();

    const texts = [
      JSON.stringify((await client.get('/api/v1/AuditLog?limit=100')).body),
      JSON.stringify((await client.get(path)).body),
      JSON.stringify(await webhook.read()),
      JSON.stringify(await sql(world.acme, 'select * from audit_log')),
      JSON.stringify(await controlSql(world, 'select * from webhook_tenants')),
      world.logs.join(''),
    ];
    const [stored] = await sql<{ sealed: Buffer[] }>(
      world.acme,
      'select secret || previous as sealed from webhook_secrets where webhook_id = $1',
      [webhook.id],
    );
    expect(stored?.sealed).to.have.length(2);
    const secrets = [webhook.secret, once.Secret, ended.Secret, last.Secret];
    const forms = [
      ...secrets.map(secret => secret.slice('whsec_'.length)),
      ...(stored?.sealed ?? []).flatMap(sealed => [
        sealed.toString('hex'),
        sealed.toString('base64'),
      ]),
    ];
    for (const text of texts) {
      for (const form of forms) expect(text).not.to.include(form);
    }
  });

  it('restore swap and back keep every former secret of the present, and a clone signs with none of them', async () => {
    const client = await world.login(world.acme);
    const webhook = await createWebhook(client);
    const environment = { ...world.environment, ...(await backupSettings(folder)) };
    const tenant = (...words: string[]) => succeed(environment, 'tenant', words);
    const second = await webhook.rotate();
    await backUp(environment);
    await tenant('restore', 'acme', '--archive', 'latest');
    const third = await webhook.rotate();
    const signing = [third.Secret, second.Secret, webhook.secret];

    await tenant('restore', 'swap', 'acme', '--yes');
    expectSigned(await webhook.send(), signing);
    await tenant('restore', 'back', 'acme', '--yes');
    expectSigned(await webhook.send(), signing);

    await tenant('clone', 'acme', 'acme-copy', '--login', world.acme.admin.email);
    const [clone] = await controlSql<{ guid: string }>(
      world,
      `select guid from tenants where slug = 'acme-copy'`,
    );
    const copy = await world.login({ ...world.acme, guid: clone!.guid });
    const rotated = await copy.post(`${path}/${webhook.id}/rotate`);
    expect(rotated.status).to.equal(200);
    expect(rotated.body.PreviousUntil).to.equal(null);
    expect((await webhook.read()).PreviousUntil).to.equal(third.PreviousUntil);
  });
});
