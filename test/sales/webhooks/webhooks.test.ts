import { randomUUID } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import pg from 'pg';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import type { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { beginEra, cursorOfNow, settle } from '../../support/settle.ts';
import { postgresUrl } from '../../support/test-server.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld, sql } from '../../support/world.ts';
import { follow } from '../events/follow.ts';
import { startReceiver, verify } from './receiver.ts';

const path = '/api/v1/Webhooks';

describe('webhooks', () => {
  const receiver = use(startReceiver);
  const world = use(() => createWorld({ WEBHOOK_TRUSTED_RECEIVERS: receiver.trusted }));
  let admin: Client;

  beforeEach(async () => {
    world.clock.offsetSeconds = 0;
    admin = await world.login(world.acme);
  });

  let codes = 0;
  const createStatus = async (client = admin) => {
    const name = `Status ${++codes}`;
    const response = await client.post('/api/v1/OrderStatuses', { Name: name });
    expect(response.status).to.equal(201);
    return String(response.body.Id);
  };
  /** Creates an endpoint that gets the changes which are to come, and no others. */
  const createWebhook = async (at: string, options: object = {}) => {
    await settle(world.acme);
    const response = await admin.post(path, { Url: receiver.url(at), ...options });
    expect(response.status, JSON.stringify(response.body)).to.equal(201);
    return response.body;
  };
  const keys = (at: string) => receiver.at(at).map(({ body }) => body.data.Key);
  const arrivalsAt = (at: string) => receiver.arrivals.filter(({ path }) => path === at);

  it('a change is sent once, signed as Standard Webhooks specifies, to the endpoints of its tenant only', async () => {
    const { Id, Secret } = await createWebhook('/signed');
    expect(Secret).to.match(/^whsec_/);

    const globex = await world.login(world.globex);
    await createStatus(globex);
    const key = await createStatus();

    const [message] = await eventually(
      () => receiver.at('/signed').length > 0 && receiver.at('/signed'),
    );
    verify(Secret, message!);
    expect(() => verify('whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA', message!)).to.throw();

    expect(message!.body).to.deep.include({ type: 'order_status.created' });
    expect(message!.body.data).to.include({ Resource: 'OrderStatus', Key: key, Action: 'create' });
    const names = [
      'Id',
      'EventId',
      'Type',
      'Resource',
      'Key',
      'Action',
      'At',
      'UserGuid',
      'Fields',
      'Href',
    ];
    expect(Object.keys(message!.body.data)).to.deep.equal(names);

    const deliveries = await eventually(async () => {
      const { body } = await admin.get(`${path}/${Id}/Deliveries`);
      return body.length > 0 && body;
    });
    expect(deliveries).to.have.length(1);
    expect(deliveries[0]).to.include({
      MessageId: message!.id,
      Type: 'order_status.created',
      Status: 204,
      Error: null,
    });

    expect(keys('/signed')).to.deep.equal([key]);
  });

  it('an endpoint receives changes in their order, and the record if it asks for it', async () => {
    await createWebhook('/ordered', { Payload: 'record', Resources: ['OrderStatus'] });
    const created: string[] = [];
    for (let count = 0; count < 10; count++) created.push(await createStatus());
    await eventually(() => receiver.at('/ordered').length === 10);
    expect(keys('/ordered')).to.deep.equal(created);
    const [first] = receiver.at('/ordered');
    expect(first?.body.data.Record).to.deep.include({ Id: Number(created[0]) });
  });

  it('an endpoint receives a change that follows more than 1,000 changes of other resources', async () => {
    await createWebhook('/far', { Resources: ['Country'] });
    await sql(
      world.acme,
      `insert into audit_log (action, resource, record_key, after, database_user)
       select 'create', 'Far', n::text, '{}'::jsonb, 'test' from generate_series(1, 2500) n
       union all select 'create', 'Country', 'NO', '{}', 'test'`,
    );
    await eventually(() => receiver.at('/far').length > 0);
    expect(keys('/far')).to.deep.equal(['NO']);
  });

  it('a repeated request returns the same secret, which no other response, the audit log nor an attempt has', async () => {
    const key = { 'Idempotency-Key': randomUUID() };
    const body = { Url: receiver.url('/secret') };
    const { Id, Secret } = (await admin.post(path, body, key)).body;
    expect((await admin.post(path, body, key)).body.Secret).to.equal(Secret);

    const texts = [
      (await admin.get(`${path}/${Id}`)).body,
      (await admin.get(path)).body,
      (await admin.get('/api/v1/AuditLog?limit=100')).body,
      await sql(world.acme, 'select user_id, key, rows from idempotency_keys'),
      await sql(world.acme, 'select * from audit_log'),
    ].map(value => JSON.stringify(value));

    const [stored] = await sql<{ secret: Buffer }>(
      world.acme,
      'select secret from webhook_secrets where webhook_id = $1',
      [Id],
    );
    const sealed = stored!.secret;
    expect(sealed.includes(Buffer.from(Secret))).to.equal(false);

    for (const text of [...texts, world.logs.join('')]) {
      expect(text).not.to.include(Secret.slice('whsec_'.length));
    }
    for (const text of [...texts.filter((_, at) => at !== 3), world.logs.join('')]) {
      for (const form of ['hex', 'base64'] as const) {
        expect(text).not.to.include(sealed.toString(form));
      }
    }

    expect(texts[4]).to.include('"resource":"Webhook"');
  });

  it('the webhooks of another tenant are 404, and a caller without the permission or the scope gets 403', async () => {
    const { Id } = await createWebhook('/mine');
    const globex = await world.login(world.globex);
    const calls = (client: Client) => [
      client.get(`${path}/${Id}`),
      client.put(`${path}/${Id}`, { Url: receiver.url('/stolen') }),
      client.delete(`${path}/${Id}`),
      client.get(`${path}/${Id}/Deliveries`),
      ...['test', 'skip', 'rotate'].map(action => client.post(`${path}/${Id}/${action}`)),
      client.post(`${path}/${Id}/replay`, { Since: '2026-01-01T00:00:00Z' }),
    ];

    for (const { status } of await Promise.all(calls(globex))) expect(status).to.equal(404);

    const reader = await world.loginAs(world.acme, { permissions: ['settings.read'] });
    for (const { status } of await Promise.all(calls(reader))) expect(status).to.equal(403);

    const own = await world.loginAs(world.acme, {
      permissions: ['settings.write'],
      scope: 'Self',
      entityId: null,
    });
    for (const { status } of await Promise.all(calls(own))) expect(status).to.equal(403);

    const blind = await world.loginAs(world.acme, { permissions: ['settings.write'] });
    const activity = await blind.post(path, {
      Url: receiver.url('/blind'),
      Resources: ['Activity'],
    });
    expect(activity.status).to.equal(403);
  });

  it('the URL of a webhook is in the audit log for those alone who may read webhooks', async () => {
    const { Url } = await createWebhook('/audited');
    const auditLog = '/api/v1/AuditLog';
    const reader = await world.loginAs(world.acme, { permissions: ['full.read'] });

    for (const [client, isShown] of [[admin, true] as const, [reader, false] as const]) {
      for (const query of ['?limit=100', '?limit=100&q=Webhook', '?limit=100&sort=-Id']) {
        const { body } = await client.get(`${auditLog}${query}`);
        expect(JSON.stringify(body).includes(Url), `${query} ${isShown}`).to.equal(isShown);
      }
    }

    expect((await reader.get(`${auditLog}?resource=Webhook`)).status).to.equal(403);
    expect((await admin.get(`${auditLog}?resource=Webhook`)).body[0].Resource).to.equal('Webhook');
  });

  it('a URL to which nothing may be sent is refused with the reason at its field', async () => {
    for (const Url of [
      'http://127.0.0.1:1/',
      'https://10.0.0.1/',
      'https://user:secret@hooks.example.com/',
      'x',
    ]) {
      const { status, body } = await admin.post(path, { Url });

      expect(status, Url).to.equal(400);
      expect(body.code, Url).to.equal('validation_failed');
      expect(Object.keys(body.errors), Url).to.deep.equal(['Url']);
    }
  });

  it('a URL whose text names another host than the one that it leads to is refused, and each spelling of its own host is taken', async () => {
    const misleading = [
      'https://hooks.example.com\\@internal.example/',
      'https://hooks.example.com/a\\b',
      'https:\\\\hooks.example.com/',
      'https:/hooks.example.com/',
      'https:hooks.example.com/',
      'https:///hooks.example.com/',
      'https://hooks.exam\u200bple.com/',
      'https://\u24d7ooks.example.com/',
      'https://hooks%2eexample.com/',
      'https://hooks\u3002example.com/',
      'https://011.8.8.8/',
    ];
    for (const Url of misleading) {
      const { status, body } = await admin.post(path, { Url });

      expect(status, Url).to.equal(400);
      expect(body.errors.Url[0], Url).to.match(/^must (have no backslash|begin with https:\/\/)/);
    }

    const plain = [
      'https://HOOKS.example.com/',
      'https://hooks.example.com:443/a?b=\\',
      'https://hooks.example.com:8443',
      'https://b\u00fccher.example/',
      'https://bu\u0308cher.example/',
      'https://xn--bcher-kva.example/',
      'https://9.9.9.9/',
      'https://[2620:FE::fe]/',
    ];
    for (const Url of plain) {
      const { status, body } = await admin.post(path, { Url });

      expect(status, Url).to.equal(201);
      expect(body.Url, Url).to.equal(Url.normalize('NFC'));
      await admin.delete(`${path}/${body.Id}`);
    }
  });

  it('an endpoint that fails keeps its place, and sends the same message again when it is due', async () => {
    let isDown = true;
    receiver.respond(
      '/down',
      response => void response.writeHead(isDown ? 500 : 204).end(isDown ? 'sorry' : ''),
    );

    const { Id } = await createWebhook('/down', { Resources: ['OrderStatus'] });
    const created = [await createStatus(), await createStatus()];

    const failing = await eventually(async () => {
      const { body } = await admin.get(`${path}/${Id}`);
      return body.NextAttemptAt !== null && body;
    });

    expect(failing.FailingSince).to.be.a('string');
    expect(keys('/down')).to.deep.equal([created[0]]);
    const [attempt] = (await admin.get(`${path}/${Id}/Deliveries`)).body;
    expect(attempt).to.include({ Status: 500, Error: 'unsuccessful response', Response: null });

    isDown = false;
    world.clock.offsetSeconds += 6;
    await eventually(() => receiver.at('/down').length === 3);

    expect(keys('/down')).to.deep.equal([created[0], created[0], created[1]]);
    expect(receiver.at('/down')[0]!.id).to.equal(receiver.at('/down')[1]!.id);
    await eventually(async () => (await admin.get(`${path}/${Id}`)).body.FailingSince === null);
  });

  it('skip lets a failing endpoint leave out one change, and replay sends one change or all since a moment again', async () => {
    receiver.respond('/skip', (response, { body }) => {
      const isPoison = String(body.data.Key) === poison;
      response.writeHead(isPoison ? 500 : 204).end();
    });

    const { Id } = await createWebhook('/skip', { Resources: ['OrderStatus'] });
    const poison = await createStatus();
    await eventually(async () => (await admin.get(`${path}/${Id}`)).body.NextAttemptAt !== null);
    const next = await createStatus();

    expect((await admin.post(`${path}/${Id}/skip`)).status).to.equal(204);
    await eventually(() => keys('/skip').includes(next));

    const sent = receiver.at('/skip').find(({ body }) => body.data.Key === next)!;
    receiver.respond('/skip', response => void response.writeHead(204).end());
    const replayed = await admin.post(`${path}/${Id}/replay`, { MessageId: sent.id });
    expect(replayed.status).to.equal(202);
    expect(replayed.body).to.deep.equal({ MessageId: sent.id });
    await eventually(() => arrivalsAt('/skip').filter(({ id }) => id === sent.id).length >= 2);

    const unknown = await admin.post(`${path}/${Id}/replay`, { MessageId: 'evt_0-1-1-1' });
    expect(unknown.status).to.equal(400);
    expect(unknown.body.code).to.equal('unknown_record');

    const Since = new Date(Date.now() - 3_600_000).toISOString();
    expect((await admin.post(`${path}/${Id}/replay`, { Since })).status).to.equal(202);
    await eventually(() => {
      const arrived = arrivalsAt('/skip').map(({ body }) => body.data.Key);
      return arrived.filter(key => key === poison).length >= 2 && arrived.at(-1) === next;
    });
  });

  it('a change has one EventId for every reader, in feed and stream, which is the webhook-id of each message about it', async () => {
    const member = await world.loginAs(world.acme, { permissions: [] });
    const [one, other] = [await createWebhook('/one'), await createWebhook('/other')];
    const places = [
      await cursorOfNow(admin, world.acme),
      await cursorOfNow(member, world.acme),
    ] as const;
    const key = await createStatus();

    const [seen, seenByMember] = await Promise.all(
      [admin, member].map((client, index) =>
        eventually(async () => {
          const { body } = await client.get(`/api/v1/Changes?after=${places[index]}`);
          return body.find(({ Key }: { Key: string }) => Key === key);
        }),
      ),
    );
    const stream = await follow(admin, `?after=${places[0]}`);
    const event = await stream.next();
    stream.close();
    const messageAt = (at: string) =>
      eventually(() => receiver.at(at).find(({ body }) => body.data.Key === key));
    const messages = [await messageAt('/one'), await messageAt('/other')];
    await admin.post(`${path}/${one.Id}/replay`, { MessageId: seen.EventId });
    await eventually(() => arrivalsAt('/one').filter(({ id }) => id === seen.EventId).length >= 2);

    expect(other.Id).not.to.equal(one.Id);
    expect(seen.EventId).to.match(/^evt_[0-9a-z-]+$/);
    expect(seenByMember.EventId).to.equal(seen.EventId);
    expect(seenByMember.Id).not.to.equal(seen.Id);
    expect(event?.data.EventId).to.equal(seen.EventId);
    for (const { id, body } of messages) {
      expect(id).to.equal(seen.EventId);
      expect(body.data.EventId).to.equal(seen.EventId);
    }
  });

  it('retry sends at once what an endpoint waits to send, and says how much that is', async () => {
    let isDown = true;
    receiver.respond('/healed', response => void response.writeHead(isDown ? 503 : 204).end());
    const { Id } = await createWebhook('/healed', { Resources: ['OrderStatus'] });
    const made = [await createStatus(), await createStatus(), await createStatus()];
    await eventually(async () => (await admin.get(`${path}/${Id}`)).body.NextAttemptAt !== null);
    const waiting = await admin.get(`${path}/${Id}/Waiting`);
    isDown = false;

    const retried = await admin.post(`${path}/${Id}/retry`);

    expect(retried.status).to.equal(202);
    expect(retried.body).to.deep.equal({ Changes: 3, Messages: 0 });
    expect(waiting.body).to.include({ Messages: 3, IsMore: false });
    const [first] = receiver.at('/healed');
    expect(waiting.body.Since).to.equal(first?.body.data.At);
    await eventually(() => keys('/healed').length === 4);
    expect(keys('/healed')).to.deep.equal([made[0], ...made]);
    await eventually(async () => (await admin.get(`${path}/${Id}`)).body.FailingSince === null);
    const { body } = await admin.get(`${path}/${Id}/Waiting`);
    expect(body).to.deep.equal({ Messages: 0, IsMore: false, Since: null });
  });

  it('retry since a moment sends what has failed since and was left out, and nothing that has arrived', async () => {
    let isDown = true;
    receiver.respond('/since', response => void response.writeHead(isDown ? 500 : 204).end());
    const { Id } = await createWebhook('/since', { Resources: ['OrderStatus'] });
    const Since = new Date(Date.now() - 3_600_000).toISOString();
    const leftOut = [await createStatus(), await createStatus()];
    for (const key of leftOut) {
      await eventually(() => keys('/since').includes(key));
      await eventually(async () => (await admin.get(`${path}/${Id}`)).body.NextAttemptAt !== null);
      expect((await admin.post(`${path}/${Id}/skip`)).status).to.equal(204);
    }
    isDown = false;
    const arrived = await createStatus();
    await eventually(() => keys('/since').includes(arrived));
    await eventually(
      async () => (await admin.get(`${path}/${Id}/Waiting`)).body.Messages === 0, // it is recorded
    );

    const later = await admin.post(`${path}/${Id}/retry`, {
      Since: new Date(Date.now() + 3_600_000).toISOString(),
    });
    expect(later.body).to.deep.equal({ Changes: 0, Messages: 0 });
    const retried = await admin.post(`${path}/${Id}/retry`, { Since });

    expect(retried.body).to.deep.equal({ Changes: 0, Messages: 2 });
    await eventually(() =>
      leftOut.every(key => keys('/since').filter(each => each === key).length === 2),
    );
    await eventually(
      async () => (await admin.post(`${path}/${Id}/retry`, { Since })).body.Messages === 0,
    );
    expect(keys('/since').filter(key => key === arrived)).to.have.length(1);
  });

  it('a replay since a moment after a failed change does not leave this change out', async () => {
    receiver.respond('/later', response => void response.writeHead(500).end());
    const { Id } = await createWebhook('/later', { Resources: ['OrderStatus'] });
    const failed = await createStatus();
    await eventually(async () => (await admin.get(`${path}/${Id}`)).body.NextAttemptAt !== null);
    receiver.respond('/later', response => void response.writeHead(204).end());
    const Since = new Date(Date.now() + 3_600_000).toISOString();
    expect((await admin.post(`${path}/${Id}/replay`, { Since })).status).to.equal(202);
    await eventually(() => keys('/later').length === 2);
    expect(keys('/later')).to.deep.equal([failed, failed]);
  });

  it('after rotate, messages carry the signatures of both secrets for 24 hours, and test sends one message', async () => {
    const { Id, Secret } = await createWebhook('/rotated');
    const rotated = await admin.post(`${path}/${Id}/rotate`);
    expect(rotated.status).to.equal(200);

    const { status, body } = await admin.post(`${path}/${Id}/test`);
    expect(status).to.equal(202);

    const [message] = await eventually(
      () => receiver.at('/rotated').length > 0 && receiver.at('/rotated'),
    );
    expect(message!.id).to.equal(body.MessageId);
    expect(message!.body.type).to.equal('webhook.test');
    verify(Secret, message!);
    verify(rotated.body.Secret, message!);

    await sql(
      world.acme,
      `update webhook_secrets set previous_until = array[now()] where webhook_id = $1`,
      [Id],
    );

    await admin.post(`${path}/${Id}/test`);
    await eventually(() => receiver.at('/rotated').length === 2);
    const later = receiver.at('/rotated')[1]!;
    verify(rotated.body.Secret, later);
    expect(() => verify(Secret, later)).to.throw();
  });

  it('of the attempts of an endpoint at most the newest 10,000 are kept', async () => {
    const { Id } = await createWebhook('/log', { Resources: ['OrderStatus'] });
    await sql(
      world.acme,
      `insert into webhook_deliveries (webhook_id, message_id, type, duration_ms)
       select $1, 'old', 'webhook.test', 1 from generate_series(1, 10500)`,
      [Id],
    );

    const counts = () =>
      sql<{ all: number; sent: number }>(
        world.acme,
        `select count(*)::integer as all, count(*) filter (where message_id <> 'old')::integer as sent
           from webhook_deliveries where webhook_id = $1`,
        [Id],
      );

    for (let count = 0; count < 21; count++) {
      await createStatus();
      // Waits for each change, so that it is sent in a batch of its own.
      await eventually(() => receiver.at('/log').length > count);
    }

    const [{ all }] = await eventually(async () => {
      const [row] = await counts();
      return row?.sent === 21 && ([row] as const);
    });
    expect(all).to.be.within(9_000, 10_000);

    await admin.delete(`${path}/${Id}`);
  });

  it('410 disables an endpoint; enabled again it continues where it stopped, and once deleted it receives nothing', async () => {
    receiver.respond('/gone', response => void response.writeHead(410).end());
    const { Id } = await createWebhook('/gone', { Resources: ['OrderStatus'] });
    const key = await createStatus();

    const disabled = await eventually(async () => {
      const { body } = await admin.get(`${path}/${Id}`);
      return !body.IsEnabled && body;
    });
    expect(disabled.DisabledReason).to.equal('gone');
    expect((await admin.post(`${path}/${Id}/test`)).status).to.equal(400);

    receiver.respond('/gone', response => void response.writeHead(204).end());
    const enabled = await admin.put(`${path}/${Id}`, {
      Url: receiver.url('/gone'),
      Resources: ['OrderStatus'],
    });
    expect(enabled.body).to.include({ IsEnabled: true, DisabledReason: null });

    await eventually(() => keys('/gone').length === 2);
    expect(keys('/gone')).to.deep.equal([key, key]);

    expect((await admin.delete(`${path}/${Id}`)).status).to.equal(204);
    expect((await admin.get(`${path}/${Id}`)).status).to.equal(404);
  });

  it('a receiver that answers 410 again and again makes one mail a day, which names its host alone', async () => {
    receiver.respond('/again/hidden', response => void response.writeHead(410).end());
    const folder = join(world.config.dataDir, 'mail');
    const readMails = async () => {
      const files = await readdir(folder).catch(() => []);
      const texts = await Promise.all(files.map(file => readFile(join(folder, file), 'utf8')));
      return texts.filter(text => text.includes('A webhook of'));
    };
    const before = await readMails();
    const webhook = { Url: receiver.url('/again/hidden'), Resources: ['OrderStatus'] };
    const { Id } = (await admin.post(path, webhook)).body;

    for (let round = 1; round <= 3; round++) {
      await createStatus();
      await eventually(
        async () => (await admin.get(`${path}/${Id}`)).body.DisabledReason === 'gone',
      );
      expect((await admin.put(`${path}/${Id}`, webhook)).status).to.equal(200);
    }
    await eventually(async () => (await admin.get(`${path}/${Id}`)).body.DisabledReason === 'gone');

    const mails = await eventually(async () => {
      const all = await readMails();
      return all.length > before.length && all.filter(text => !before.includes(text));
    });
    const receivers = mails.map(text => /^To: (.*)$/m.exec(text)?.[1]);
    expect(new Set(receivers).size, 'each of those who manage settings got one').to.equal(
      receivers.length,
    );
    expect(mails[0]).to.contain(new URL(webhook.Url).host).and.not.contain('hidden');
    await admin.delete(`${path}/${Id}`);
  });

  it('a webhook that is deleted and made again makes no more mails to a person in a day than a tenant has webhooks', async () => {
    receiver.respond('/anew', response => void response.writeHead(410).end());
    const colleague = await world.loginAs(world.acme, { permissions: ['settings.write'] });
    const { userGuid: guid } = (await colleague.get('/api/v1/auth/me')).body;
    const { email } = world.acme.admin;
    const noticesTo = async (whom: string, value: string): Promise<number[]> => {
      const rows = await controlSql<{ id: string }>(
        world,
        `select m.id from mail_deliveries m join users u on u.id = user_id
          where m.kind = 'webhook_disabled' and ${whom} = ? order by m.id`,
        [value],
      );
      return rows.map(({ id }) => Number(id));
    };
    await controlSql(
      world,
      `insert into mail_deliveries (link, tenant_id, user_id, kind, about, state, settled_at, expires_at)
       select gen_random_uuid(), tenant_id, id, 'webhook_disabled', jsonb_build_object('host', n), 'sent', now(),
              now() + interval '1 day'
         from generate_series(1, 19 - ?::int) n, users where email = ?`,
      [(await noticesTo('email', email)).length, email],
    );
    const before = await noticesTo('email', email);

    for (let round = 1; round <= 3; round++) {
      const told = (await noticesTo('guid::text', guid)).at(-1) ?? 0;
      const { Id } = await createWebhook('/anew', { Resources: ['OrderStatus'] });
      await createStatus();
      await eventually(async () => ((await noticesTo('guid::text', guid)).at(-1) ?? 0) > told);
      expect((await admin.delete(`${path}/${Id}`)).status).to.equal(204);
    }

    const after = await noticesTo('email', email);
    expect(before).to.have.length(19);
    expect(after.slice(0, 19)).to.deep.equal(before);
    expect(after).to.have.length(20);
  });

  it('a webhook sends only what its user may read: once that user is disabled or lost the right, it stops and says why', async () => {
    const changes = [
      ['disabled', 401, 'update users set disabled_at = now() where guid = ?'],
      [
        'role',
        403,
        `update roles set permissions = '{settings.write}' where id = (select role_id from users where guid = ?)`,
      ],
    ] as const;
    for (const [what, refused, change] of changes) {
      const maker = await world.loginAs(world.acme, {
        permissions: ['settings.write', 'full.read'],
      });
      const me = (await maker.get('/api/v1/auth/me')).body;
      const Url = receiver.url(`/of-${what}`);
      const { body: made } = await maker.post(path, { Url, Resources: ['Activity'] });
      const users = (await admin.get('/api/v1/Users?limit=1000')).body;
      const owner = users.find(({ Guid }: { Guid: string }) => Guid === me.userGuid);
      expect(made.UserId, what).to.equal(owner.Id);

      await controlSql(world, change, [me.userGuid]);
      await eventually(async () => (await maker.get('/api/v1/Activity')).status === refused);
      await admin.post('/api/v1/Activity', { ActivityCode: 1, Comment: 'not for that user' });

      await eventually(
        async () => (await admin.get(`${path}/${made.Id}`)).body.DisabledReason === 'rights',
      );
      expect(keys(`/of-${what}`), what).to.deep.equal([]);

      const taken = await admin.put(`${path}/${made.Id}`, { Url, Resources: ['Activity'] });
      expect(taken.status, what).to.equal(200);
      await eventually(() => keys(`/of-${what}`).length === 1);
      await admin.delete(`${path}/${made.Id}`);
    }
  });

  it('a tenant sends one host 50 messages at once, and then 50 a second, however many webhooks it has', async () => {
    const webhooks = [];
    for (const at of ['/rate-1', '/rate-2', '/rate-3']) {
      webhooks.push(await createWebhook(at, { Resources: ['OrderStatus'] }));
    }
    const begun = performance.now();
    await sql(
      world.acme,
      `insert into order_statuses (name) select 'rate ' || n from generate_series(1, 60) n`,
    );

    await eventually(() => [1, 2, 3].every(n => keys(`/rate-${n}`).length >= 60));

    expect((performance.now() - begun) / 1_000, 'seconds for 180 messages').to.be.at.least(
      (180 - 50) / 50 - 0.1,
    );
    for (const { Id } of webhooks) await admin.delete(`${path}/${Id}`);
  });

  it('a receiver that answers 500 for an hour is tried at the steps of the schedule, and then gets every change in order', async () => {
    let isDown = true;
    receiver.respond('/hour', response => void response.writeHead(isDown ? 500 : 204).end());
    const { Id } = await createWebhook('/hour', { Resources: ['OrderStatus'] });
    const created: string[] = [];
    const begunAt = world.clock.offsetSeconds;

    for (const [failures, waitSeconds] of [5, 5 * 60, 30 * 60, 2 * 3_600].entries()) {
      // The change also lets the endpoint be looked at before its time.
      created.push(await createStatus());
      const { body } = await eventually(async () => {
        const response = await admin.get(`${path}/${Id}/Deliveries`);
        return response.body.length > failures && response;
      });
      expect(body.map(({ Status }: { Status: number }) => Status)).to.deep.equal(
        body.map(() => 500),
      );

      const { NextAttemptAt } = (await admin.get(`${path}/${Id}`)).body;
      const waitMs = Date.parse(NextAttemptAt) - Date.parse(body[0].AttemptedAt);
      expect(waitMs / 1_000, `wait ${failures + 1}`).to.be.within(
        waitSeconds - 0.01,
        waitSeconds * 1.1 + 0.01,
      );

      isDown = world.clock.offsetSeconds - begunAt < 30 * 60;
      world.clock.offsetSeconds += waitMs / 1_000;
      admin = await world.login(world.acme); // its token may have expired
      // The queue has the clock of the control database.
      await controlSql(world, 'update webhook_tenants set due_at = now(), wakes = wakes + 1');
    }

    await eventually(() => keys('/hour').includes(created.at(-1)));

    const [first, ...others] = created;
    expect(keys('/hour')).to.deep.equal([first, first, first, first, first, ...others]);
    expect(new Set(receiver.at('/hour').map(({ id }) => id)).size).to.equal(created.length);
    await eventually(async () => (await admin.get(`${path}/${Id}`)).body.FailingSince === null);
  });

  it('an endpoint that failed for 5 days is disabled, with a mail to those who manage settings', async () => {
    receiver.respond('/dead', response => void response.writeHead(500).end());
    const { Id } = await createWebhook('/dead', { Resources: ['OrderStatus'] });
    await createStatus();
    await eventually(async () => (await admin.get(`${path}/${Id}`)).body.NextAttemptAt !== null);

    world.clock.offsetSeconds += 5 * 86_400 + 60;
    const late = await eventually(async () => {
      const [row] = await sql<{ reason: string | null }>(
        world.acme,
        'select disabled_reason as reason from webhooks where id = $1 and not is_enabled',
        [Id],
      );
      return row?.reason;
    });
    expect(late).to.equal('failing');

    await eventually(() => world.logs.some(line => line.includes('mail_written')));
    admin = await world.login(world.acme); // its token has expired
  });

  it('an isolated tenant sends nothing, and its endpoints continue where they stopped when the isolation ends', async () => {
    await createWebhook('/isolated', { Resources: ['OrderStatus'] });
    const isServed = async () => {
      const text =
        'select from webhook_tenants where tenant_id = ? and due_at is null and leased_until <= now()';
      return (await controlSql(world, text, [world.acme.id])).length > 0;
    };
    await eventually(isServed);

    const set = (isolated: boolean) =>
      controlSql(world, 'update tenants set isolated = ? where id = ?', [isolated, world.acme.id]);
    await set(true);
    const key = await createStatus(await world.login(world.acme));

    const row = () =>
      controlSql<{ due: boolean }>(
        world,
        'select due_at <= now() as due from webhook_tenants where tenant_id = ? and leased_until <= now()',
        [world.acme.id],
      );
    await eventually(async () => (await row())[0]?.due);
    expect(receiver.at('/isolated')).to.deep.equal([]);

    await set(false);
    await eventually(() => receiver.at('/isolated').length === 1);
    expect(keys('/isolated')).to.deep.equal([key]);
  });

  it('a caller who changes the URL gets none of the waiting messages about resources that they may not read', async () => {
    const { Id } = await createWebhook('/private', {
      Resources: ['Activity', 'OrderStatus'],
      Payload: 'record',
    });

    await createStatus();
    const { status } = await admin.post('/api/v1/Activity', {
      ActivityCode: 7,
      Comment: 'salary of Ann',
    });
    expect(status).to.equal(201);
    await eventually(() => receiver.at('/private').length === 2);

    receiver.respond('/private', response => void response.writeHead(500).end());
    for (const { id } of receiver.at('/private')) {
      expect((await admin.post(`${path}/${Id}/replay`, { MessageId: id })).status).to.equal(202);
    }

    const waiting = async (): Promise<string[]> => {
      const rows = await sql<{ body: string }>(
        world.acme,
        'select body from webhook_messages where webhook_id = $1',
        [Id],
      );
      return rows.map(({ body }) => JSON.parse(body).data.Resource).sort();
    };
    await eventually(async () => (await waiting()).join() === 'Activity,OrderStatus');

    const other = await world.loginAs(world.acme, {
      permissions: ['settings.write', 'settings.read', 'orders.read'],
    });
    expect((await other.get('/api/v1/Activity')).status).to.equal(403);

    const changed = await other.put(`${path}/${Id}`, {
      Url: receiver.url('/theirs'),
      Resources: ['OrderStatus'],
      Payload: 'record',
      IsEnabled: false,
    });

    expect(changed.status, JSON.stringify(changed.body)).to.equal(200);
    expect(await waiting()).to.deep.equal(['OrderStatus']);
    await admin.delete(`${path}/${Id}`);
  });

  it('a record of a webhook has an ETag, with which a change of another version is refused', async () => {
    const { Id } = await createWebhook('/tagged', { IsEnabled: false });
    const { headers } = await admin.get(`${path}/${Id}`);
    const body = { Url: receiver.url('/tagged'), IsEnabled: false, Description: 'changed' };
    const ifMatch = { 'If-Match': headers.get('etag') ?? '' };
    expect((await admin.put(`${path}/${Id}`, body, ifMatch)).status).to.equal(200);
    expect((await admin.put(`${path}/${Id}`, body, ifMatch)).status).to.equal(412);
    await admin.delete(`${path}/${Id}`);
  });

  it('the response that creates a webhook has an ETag, with which it is changed once', async () => {
    const order = { Url: receiver.url('/created'), IsEnabled: false };
    const created = await admin.post(path, order);
    const tag = created.headers.get('etag') ?? '';
    const change = (Description: string) =>
      admin.put(`${path}/${created.body.Id}`, { ...order, Description }, { 'If-Match': tag });

    expect(created.body.Secret).to.match(/^whsec_/);
    expect((await change('changed')).status).to.equal(200);
    expect((await change('again')).status).to.equal(412);

    await admin.delete(`${path}/${created.body.Id}`);
  });

  it('deliveries change the ETag of a webhook, so that no 304 hides them, and If-Match does not compare their state', async () => {
    const { Id } = await createWebhook('/busy', { Resources: ['OrderStatus'] });
    const read = await admin.get(`${path}/${Id}`);
    const tag = read.headers.get('etag') ?? '';
    const put = (change: object) =>
      admin.put(
        `${path}/${Id}`,
        { Url: receiver.url('/busy'), Resources: ['OrderStatus'], ...change },
        { 'If-Match': tag },
      );

    await createStatus();
    const delivered = await eventually(async () => {
      const again = await admin.get(`${path}/${Id}`, { 'If-None-Match': tag });
      return again.status === 200 && again;
    });
    expect(delivered.body.LastSuccessAt).to.be.a('string');
    expect(delivered.headers.get('etag')).not.to.equal(tag);

    receiver.respond('/busy', response => void response.writeHead(503).end());
    await createStatus();
    await eventually(async () => (await admin.get(`${path}/${Id}`)).body.FailingSince);

    const changed = await put({ Description: 'changed' });
    expect(changed.status).to.equal(200);
    expect((await put({ Description: 'undone' })).status).to.equal(412);
    expect((await admin.delete(`${path}/${Id}`, { 'If-Match': tag })).status).to.equal(412);
    expect((await admin.get(`${path}/${Id}`)).body.Description).to.equal('changed');

    await admin.delete(`${path}/${Id}`);
  });

  it('a webhook that the service has disabled is not changed by a client that has not seen that', async () => {
    receiver.respond('/over', response => void response.writeHead(410).end());
    const { Id } = await createWebhook('/over', { Resources: ['OrderStatus'] });
    const tag = (await admin.get(`${path}/${Id}`)).headers.get('etag') ?? '';

    await createStatus();
    await eventually(async () => (await admin.get(`${path}/${Id}`)).body.DisabledReason === 'gone');

    const body = { Url: receiver.url('/over'), Resources: ['OrderStatus'] };
    const refused = await admin.put(`${path}/${Id}`, body, { 'If-Match': tag });
    expect(refused.status).to.equal(412);

    await admin.delete(`${path}/${Id}`);
  });

  it('concurrent requests create no more than 20 webhooks', async () => {
    const globex = await world.login(world.globex);
    const request = () => globex.post(path, { Url: receiver.url('/many'), IsEnabled: false });
    await Promise.all(Array.from({ length: 40 }, request));
    const { body } = await globex.get(path);
    expect(body).to.have.length(20);
    for (const { Id } of body) await globex.delete(`${path}/${Id}`);
  });

  it('webhooks are served again when the tenant gets other data, although none was enabled before', async () => {
    const run = (text: string) => controlSql(world, text);
    const { Id } = await createWebhook('/again', { IsEnabled: false });
    const guid = `(select id from tenants where guid = '${world.acme.guid}')`;
    await run(`update webhook_tenants set is_active = false where tenant_id = ${guid}`);
    await run(`update tenants set isolated = true where guid = '${world.acme.guid}'`);
    await run(`update tenants set isolated = false where guid = '${world.acme.guid}'`);
    const [row] = await run(`select is_active from webhook_tenants where tenant_id = ${guid}`);
    expect(row).to.deep.equal({ is_active: true });
    await admin.delete(`${path}/${Id}`);
  });

  it('the clock of a process does not delay a change', async () => {
    const { Id } = await createWebhook('/clock', { Resources: ['OrderStatus'] });
    await createStatus();
    await eventually(() => keys('/clock').length === 1);
    world.clock.offsetSeconds -= 600;
    const key = await createStatus();
    await eventually(() => keys('/clock').includes(key));
    world.clock.offsetSeconds += 600;
    await admin.delete(`${path}/${Id}`);
  });

  it('skip lets an endpoint leave out a gap that its receiver refuses, and what follows arrives', async () => {
    receiver.respond('/gap', (response, { body }) => {
      response.writeHead(body.type === 'webhook.gap' ? 500 : 204).end();
    });

    const { Id } = await createWebhook('/gap', { Resources: ['OrderStatus'] });
    await beginEra(world.acme);

    const key = await createStatus();

    await eventually(async () => (await admin.get(`${path}/${Id}`)).body.NextAttemptAt !== null);
    expect((await admin.post(`${path}/${Id}/skip`)).status).to.equal(204);
    await eventually(() => keys('/gap').includes(key));
    expect(receiver.at('/gap').map(({ body }) => body.type)).to.deep.equal([
      'webhook.gap',
      'order_status.created',
    ]);
    await admin.delete(`${path}/${Id}`);
  });
});

describe('webhooks of many tenants', () => {
  const receiver = use(startReceiver);
  const world = use(() => createWorld());

  const createStatus = async (client: Client, name: string) => {
    const response = await client.post('/api/v1/OrderStatuses', { Name: name });
    expect(response.status).to.equal(201);
    return String(response.body.Id);
  };

  it('a change is sent on the connection that made it, however many other tenants wait for their databases', async () => {
    const others = await Promise.all(
      Array.from({ length: 8 }, (_, number) => world.provision(`slow${number}`)),
    );
    const [admin, ...clients] = await Promise.all(
      [world.acme, ...others].map(tenant => world.login(tenant)),
    );
    await world.service.stop();
    const { url } = await world.startAnotherServer({
      WEBHOOK_TRUSTED_RECEIVERS: receiver.trustedBy([world.acme, ...others]),
    });
    const prompt = { Url: receiver.url('/prompt'), Resources: ['OrderStatus'] };
    expect((await admin!.at(url).post(path, prompt)).status).to.equal(201);

    const locks = await Promise.all(
      others.map(async (tenant, number) => {
        const client = clients[number]!.at(url);
        expect((await client.post(path, { Url: receiver.url('/slow') })).status).to.equal(201);
        const lock = new pg.Client(tenant.adminUrl);
        await lock.connect();
        await lock.query('begin; lock table webhooks in access exclusive mode');
        await createStatus(client, 'Slow');
        return lock;
      }),
    );

    const waiting = () =>
      withConnection(postgresUrl(), async client => {
        const { rows } = await client.query<{ count: number }>(
          `select count(distinct datname)::int as count from pg_stat_activity
            where wait_event_type = 'Lock' and datname = any ($1)`,
          [others.map(({ database }) => database)],
        );
        return rows[0]!.count;
      });

    try {
      await eventually(async () => (await waiting()) === others.length);
      const key = await createStatus(admin!.at(url), 'Prompt');

      await eventually(() => receiver.at('/prompt').some(({ body }) => body.data.Key === key));
      expect(await waiting()).to.equal(others.length);
    } finally {
      await Promise.all(locks.map(lock => lock.end()));
    }

    await eventually(() => receiver.at('/slow').length === others.length);
  });
});
