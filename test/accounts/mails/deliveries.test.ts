import { randomUUID } from 'node:crypto';
import { type AddressInfo, createServer } from 'node:net';
import { expect } from 'chai';
import { type LeasedMail, MailQueue } from '../../../src/accounts/mails/mail-queue.ts';
import { maxConnections } from '../../../src/accounts/mails/mail-transport.ts';
import { diagnose } from '../../../src/operator/doctor/doctor.ts';
import { startReceiver } from '../../sales/webhooks/receiver.ts';
import { eventually } from '../../support/eventually.ts';
import { startMailServer, tokenIn } from '../../support/mail-server.ts';
import { mailsSettled, tryMailsNow } from '../../support/mails.ts';
import { startSilentServer } from '../../support/silent-server.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld, useLogin } from '../../support/world.ts';
import { addSampleUser, type SampleUser } from '../auth/sample-users.ts';
import { expectProblem, invitation, newAddress, usersPath } from '../people/people-world.ts';

const greylisting = { code: 451, text: '4.7.1 Greylisted, come back later', at: 'RCPT' } as const;
const password = 'correct horse battery staple';

describe('deliveries of mails', () => {
  const mail = use(startMailServer);
  const world = use(() => createWorld({ SMTP_URL: mail.url, RATE_LIMIT_MAILS: '3/15m' }));
  const admin = useLogin(world, 'acme');

  before(async () => {
    await controlSql(world, `update tenants set features = '{selfRegistration}' where id = ?`, [
      world.acme.id,
    ]);
  });
  beforeEach(() => controlSql(world, 'delete from mail_deliveries'));

  const post = (path: string, body: object) =>
    world.anonymous.post(`/api/v1/auth/${path}`, body, { 'X-Tenant': world.acme.guid });
  const requestReset = async ({ email }: Pick<SampleUser, 'email'>): Promise<void> => {
    expect((await post('reset-password', { email })).status).to.equal(202);
    await mailsSettled(world);
  };
  const useToken = async (token: string | undefined): Promise<number> =>
    (await post('reset-password', { token, newPassword: password })).status;
  const recordOf = async ({ id }: Pick<SampleUser, 'id'>) =>
    (await admin.get(`${usersPath}/${id}`)).body;
  const linesOf = (event: string, from = 0) =>
    world.logs
      .slice(from)
      .map(line => JSON.parse(line))
      .filter(line => line.event === event);

  it('a mail that a server defers at the first try arrives at the second one, and the log has the answer of the server', async () => {
    const user = await addSampleUser(world, world.acme);
    const from = world.logs.length;
    mail.refuse(user.email, { ...greylisting, times: 1 });

    await requestReset(user);

    const [line] = linesOf('mail_failed', from);
    expect(line).to.include({
      tenant: world.acme.guid,
      kind: 'reset',
      attempt: 1,
      code: 'EENVELOPE',
      command: 'RCPT TO',
      responseCode: 451,
      enhancedCode: '4.7.1',
    });
    expect(line.traceId).to.be.a('string');
    expect(line.message).to.include('Greylisted');
    expect(line.retryInSeconds).to.be.within(60, 66);
    expect(world.logs.slice(from).join('')).to.not.include(user.email.split('@')[0]);

    expect(await recordOf(user)).to.include({
      MailState: 'waiting',
      MailReason: 'the mail server asks for patience (451 4.7.1)',
    });
    expect(mail.messagesTo(user.email)).to.deep.equal([]);

    await tryMailsNow(world);
    const token = await mail.waitForToken(user.email);
    await mailsSettled(world);

    expect(await recordOf(user)).to.include({ MailState: 'sent', MailReason: null });
    expect(await useToken(token)).to.equal(204);
  });

  it('every attempt sends the same link, and the link of an attempt that was not accepted works', async () => {
    const user = await addSampleUser(world, world.acme);
    mail.refuse(user.email, { code: 451, text: '4.3.0 try again', times: 2 });

    await requestReset(user);
    for (let attempt = 2; attempt <= 3; attempt++) {
      await tryMailsNow(world);
      await mailsSettled(world);
    }

    const tokens = mail.textsTo(user.email).map(tokenIn);
    expect(tokens).to.have.length(3);
    expect(new Set(tokens).size).to.equal(1);
    expect(await useToken(tokens[0])).to.equal(204);
  });

  it('an outage queues one mail of a user and kind, and mails that were not accepted do not count for the limit', async () => {
    const user = await addSampleUser(world, world.acme);
    mail.refuse(user.email, { code: 421, text: '4.3.2 closing' });
    for (let request = 1; request <= 3; request++) await requestReset(user);
    const waiting = await controlSql(world, 'select id from mail_deliveries where user_id = ?', [
      user.id,
    ]);
    expect(waiting).to.have.length(1);

    mail.accept(user.email);
    for (let request = 1; request <= 3; request++) await requestReset(user);

    expect(mail.messagesTo(user.email)).to.have.length(3);
    await requestReset(user);
    expect(mail.messagesTo(user.email)).to.have.length(3);
    expect(await useToken(tokenIn(mail.messagesTo(user.email)[1]?.content))).to.equal(400);
    expect(await useToken(tokenIn(mail.messagesTo(user.email)[2]?.content))).to.equal(204);
  });

  it('an administrator may invite again after invitations that no mail server accepted, and the last one arrives', async () => {
    const sent = invitation();
    mail.refuse(sent.Email, greylisting);
    for (let invited = 1; invited <= 4; invited++) {
      expect((await admin.post(usersPath, sent)).status).to.equal(201);
      await mailsSettled(world);
    }

    mail.accept(sent.Email);
    await tryMailsNow(world);

    expect(await useToken(await mail.waitForToken(sent.Email))).to.equal(204);
    await mailsSettled(world);
    expect(mail.messagesTo(sent.Email)).to.have.length(1);
  });

  it('a mail that its server refuses is not tried again; the user, the log and doctor say why', async () => {
    const sent = invitation();
    const from = world.logs.length;
    mail.refuse(sent.Email, {
      code: 550,
      text: `5.1.1 <${sent.Email}>: no such mailbox`,
      at: 'RCPT',
    });

    const { body: invited } = await admin.post(usersPath, sent);
    await mailsSettled(world);

    const reason = 'the mail server refuses the address (550 5.1.1)';
    const record = (await admin.get(`${usersPath}/${invited.Id}`)).body;
    expect(record).to.include({ MailState: 'refused', MailReason: reason });
    expect((await admin.get(`${usersPath}?filter[MailState]=refused`)).body).to.deep.equal([
      record,
    ]);

    const [line] = linesOf('mail_refused', from);
    expect(line).to.include({
      responseCode: 550,
      enhancedCode: '5.1.1',
      kind: 'invitation',
      level: 50,
    });
    expect(world.logs.slice(from).join('')).to.not.include(sent.Email);

    const { findings } = await diagnose(world.installation, { controlOnly: true });
    const [finding] = findings.filter(({ check }) => check === 'mails_refused');
    expect(finding?.problem).to.equal(`1 mail to users of acme was not accepted: ${reason}`);
    expect(finding?.severity).to.equal('warning');

    await tryMailsNow(world);
    await mailsSettled(world);
    expect(mail.refused).to.be.above(0);
    expect(mail.textsTo(sent.Email)).to.deep.equal([]);
  });

  it('a mail is tried five times, later each time, and then given up', async () => {
    const sent = invitation();
    const from = world.logs.length;
    mail.refuse(sent.Email, greylisting);
    const { body: invited } = await admin.post(usersPath, sent);
    await mailsSettled(world);
    for (let attempt = 2; attempt <= 5; attempt++) {
      await tryMailsNow(world);
      await mailsSettled(world);
    }

    const waits = linesOf('mail_failed', from).map(({ retryInSeconds }) => retryInSeconds);
    expect(waits).to.have.length(4);
    for (const [index, minutes] of [1, 5, 30, 120].entries()) {
      expect(waits[index]).to.be.within(minutes * 60, minutes * 66);
    }
    expect(linesOf('mail_refused', from)).to.have.length(1);
    expect((await admin.get(`${usersPath}/${invited.Id}`)).body.MailState).to.equal('refused');
    const metrics = await fetch(`http://127.0.0.1:${world.service.managementPort}/metrics`);
    expect(await metrics.text()).to.match(/^mails_refused_total [1-9]/m);
  });

  it('doctor reports mails that have waited for ten minutes', async () => {
    const sent = invitation();
    mail.refuse(sent.Email, greylisting);
    await admin.post(usersPath, sent);
    await mailsSettled(world);
    const waiting = async () =>
      (await diagnose(world.installation, { controlOnly: true })).findings.find(
        ({ check }) => check === 'mails_waiting',
      )?.problem;
    expect(await waiting()).to.equal(undefined);

    await controlSql(
      world,
      `update mail_deliveries set created_at = now() - interval '11 minutes' where state = 'waiting'`,
    );

    expect(await waiting()).to.match(
      /^1 mail has waited for ten minutes: the mail server asks for patience \(451/,
    );
    mail.accept(sent.Email);
    await tryMailsNow(world);
    await mail.waitForToken(sent.Email);
  });

  it('a mail whose link has expired is not sent', async () => {
    const user = await addSampleUser(world, world.acme);
    mail.refuse(user.email, { ...greylisting, times: 1 });
    await requestReset(user);
    await controlSql(world, 'update mail_deliveries set expires_at = now() where user_id = ?', [
      user.id,
    ]);

    await tryMailsNow(world);
    await mailsSettled(world);

    expect(mail.messagesTo(user.email)).to.deep.equal([]);
    expect(await recordOf(user)).to.include({
      MailState: 'refused',
      MailReason: 'its link has expired',
    });
  });

  it('after the control database was put back, no link that it lost works, even when the same ids are given again', async () => {
    const [known, invited, registered] = [
      await addSampleUser(world, world.acme),
      invitation(),
      newAddress(),
    ];

    const person = { email: registered, password, firstName: 'Nora', lastName: 'Newman' };
    const [last] = await controlSql<{ id: string }>(
      world,
      'select coalesce(max(id), 0) as id from mail_deliveries',
    );

    const send = async (count: number) => {
      await requestReset(known);
      await admin.post(usersPath, invited);
      await post('register', person);
      await mailsSettled(world);
      return {
        reset: await mail.waitForToken(known.email, count),
        invitation: await mail.waitForToken(invited.Email, count),
        registration: await mail.waitForToken(registered, count),
      };
    };

    const lost = await send(1);

    await controlSql(world, 'delete from mail_deliveries where id > ?', [last?.id]);
    await controlSql(
      world,
      `alter table mail_deliveries alter id restart with ${Number(last?.id) + 1}`,
    );

    const statuses = async (tokens: typeof lost) => [
      await useToken(tokens.reset),
      await useToken(tokens.invitation),
      (await post('confirm', { token: tokens.registration })).status,
    ];

    expect(await statuses(lost)).to.deep.equal([400, 400, 400]);
    const later = await send(2);

    expect(await statuses(lost)).to.deep.equal([400, 400, 400]);
    expect(await statuses(later)).to.deep.equal([204, 204, 204]);
  });

  it('of two processes, one sends a mail', async () => {
    const other = await world.startAnotherServer();
    const users = await Promise.all(
      Array.from({ length: 12 }, () => addSampleUser(world, world.acme)),
    );

    await Promise.all(
      users.map(({ email }, index) =>
        (index % 2 === 0 ? world.anonymous : world.anonymous.at(other.url)).post(
          '/api/v1/auth/reset-password',
          { email },
          { 'X-Tenant': world.acme.guid },
        ),
      ),
    );
    await mailsSettled(world);

    for (const { email } of users) expect(mail.messagesTo(email), email).to.have.length(1);
    await other.service.stop();
  });

  it('a mail of a process that ended without giving it back is sent by another one when its lease ends', async () => {
    const user = await addSampleUser(world, world.acme);
    mail.refuse(user.email, { ...greylisting, times: 1 });
    await requestReset(user);

    await controlSql(
      world,
      `update mail_deliveries
          set next_attempt_at = now(), holder = gen_random_uuid(), leased_until = now() + interval '2 seconds', tried_at = now()
        where user_id = ?`,
      [user.id],
    );

    expect(await useToken(await mail.waitForToken(user.email))).to.equal(204);
  });

  it('a process that lost its lease while it was paused neither sends the mail nor removes it', async () => {
    const user = await addSampleUser(world, world.acme);
    mail.refuse(user.email, { ...greylisting, times: 1 });
    await requestReset(user);
    const paused = randomUUID();
    const [row] = await controlSql<{ id: string }>(
      world,
      'update mail_deliveries set holder = ?, leased_until = now() where user_id = ? returning id',
      [paused, user.id],
    );
    const queue = new MailQueue(world.control, paused);
    const leased = { id: Number(row?.id) } as LeasedMail;

    expect(await queue.begin(leased)).to.equal(undefined);
    await queue.endReplaced(leased);

    await tryMailsNow(world);
    expect(await useToken(await mail.waitForToken(user.email))).to.equal(204);
  });

  it('a mail whose text the server took without an answer is sent again, and the link in the first copy works', async () => {
    const texts: string[] = [];
    const forgetful = createServer(socket => {
      let isText = false;
      let received = '';
      socket.on('error', () => {});
      socket.write('220 test ESMTP\r\n');
      socket.on('data', chunk => {
        received += chunk;
        if (isText && received.endsWith('\r\n.\r\n')) {
          texts.push(received);
          socket.destroy();
        } else if (!isText && received.endsWith('\r\n')) {
          isText = /^DATA/im.test(received);
          received = '';
          socket.write(isText ? '354 go on\r\n' : '250 ok\r\n');
        }
      });
    });

    await new Promise<void>(resolve => forgetful.listen(0, '127.0.0.1', resolve));
    const away = await createWorld({
      SMTP_URL: `smtp://127.0.0.1:${(forgetful.address() as AddressInfo).port}`,
    });

    try {
      const { email } = await addSampleUser(away, away.acme);
      const headers = { 'X-Tenant': away.acme.guid };
      await away.anonymous.post('/api/v1/auth/reset-password', { email }, headers);
      await mailsSettled(away);
      const [waiting] = await controlSql(
        away,
        'select state, tried_at is not null as "isTried" from mail_deliveries',
      );
      expect(waiting).to.deep.equal({ state: 'waiting', isTried: true });

      await tryMailsNow(away);
      await mailsSettled(away);

      const [first, second] = texts.map(tokenIn);
      expect(first).to.be.a('string');
      expect(second).to.equal(first);
      const body = { token: first, newPassword: password };
      expect(
        (await away.anonymous.post('/api/v1/auth/reset-password', body, headers)).status,
      ).to.equal(204);
      const [used] = await controlSql(
        away,
        'select state, used_at is not null as "isUsed" from mail_deliveries',
      );
      expect(used).to.deep.equal({ state: 'sent', isUsed: true });
    } finally {
      await away.close();
      forgetful.close();
    }
  });

  it('mails share at most three connections to the mail server', async () => {
    const own = await startMailServer();
    const busy = await createWorld({ SMTP_URL: own.url });
    try {
      const users = await Promise.all(
        Array.from({ length: 12 }, () => addSampleUser(busy, busy.acme)),
      );
      const request = ({ email }: SampleUser) =>
        busy.anonymous.post(
          '/api/v1/auth/reset-password',
          { email },
          { 'X-Tenant': busy.acme.guid },
        );

      await Promise.all(users.map(request));
      await mailsSettled(busy);

      expect(own.messages).to.have.length(12);
      expect(own.connections).to.be.within(1, 3);
    } finally {
      await busy.close();
      await own.close();
    }
  });

  it('a mail server that hangs delays no webhook: while all of its connections wait, a change arrives at once', async () => {
    const receiver = await startReceiver();
    const silent = await startSilentServer();

    const hanging = await createWorld({
      SMTP_URL: `smtp://127.0.0.1:${silent.port}`,
      WEBHOOK_TRUSTED_RECEIVERS: receiver.trusted,
    });

    try {
      const client = await hanging.login(hanging.acme);
      expect(
        (await client.post('/api/v1/Webhooks', { Url: receiver.url('/hook') })).status,
      ).to.equal(201);

      const users = await Promise.all(
        Array.from({ length: 8 }, () => addSampleUser(hanging, hanging.acme)),
      );

      const header = { 'X-Tenant': hanging.acme.guid };
      await Promise.all(
        users.map(({ email }) =>
          hanging.anonymous.post('/api/v1/auth/reset-password', { email }, header),
        ),
      );
      await eventually(() => silent.accepted >= maxConnections);

      for (const Title of ['one', 'two', 'three']) {
        expect((await client.post('/api/v1/EntityStatus', { Title })).status).to.equal(201);
      }

      await eventually(() => receiver.at('/hook').length === 3);
      const rows = await controlSql(hanging, 'select distinct state from mail_deliveries');
      expect(rows).to.deep.equal([{ state: 'waiting' }]);
    } finally {
      await hanging.close();
      await silent.close();
      await receiver.close();
    }
  });

  it('a stop waits a second for a silent mail server, and leaves the mail to others', async () => {
    const silent = await startSilentServer();
    const away = await createWorld({ SMTP_URL: `smtp://127.0.0.1:${silent.port}` });

    try {
      const user = await addSampleUser(away, away.acme);
      await away.anonymous.post(
        '/api/v1/auth/reset-password',
        { email: user.email },
        { 'X-Tenant': away.acme.guid },
      );
      await eventually(() => silent.accepted > 0);
      const startedAt = performance.now();

      await away.service.stop();

      const ms = performance.now() - startedAt;
      console.log(`      stopped after ${ms.toFixed(0)} ms`);
      // a busy machine takes longer than a second; the time limits of a mail are minutes
      expect(ms).to.be.below(30_000);
      const [row] = await controlSql(
        away,
        'select state, attempts, tried_at, holder from mail_deliveries',
      );
      expect(row).to.deep.equal({ state: 'waiting', attempts: 0, tried_at: null, holder: null });
    } finally {
      await away.close();
      await silent.close();
    }
  });

  it('a tenant that is isolated sends no mail, and its users say so', async () => {
    await controlSql(world, 'update tenants set isolated = true where id = ?', [world.globex.id]);
    const globex = await world.login(world.globex);
    await eventually(
      async () => (await controlSql(world, 'select from tenants where isolated')).length === 1,
    );
    const sent = invitation();

    const { body } = await globex.post(usersPath, sent);
    await mailsSettled(world);

    expect(mail.messagesTo(sent.Email)).to.deep.equal([]);
    const record = (await globex.get(`${usersPath}/${body.Id}`)).body;
    expect(record).to.include({ MailState: 'refused', MailReason: 'the tenant is isolated' });
    expectProblem(
      await post('reset-password', { token: 'x', newPassword: password }),
      400,
      'validation_failed',
    );
    await controlSql(world, 'update tenants set isolated = false');
  });
});

describe('deliveries of mails of several tenants', () => {
  const mail = use(startMailServer);
  const world = use(() => createWorld({ SMTP_URL: mail.url }));

  for (const [flooding, waiting] of [
    ['acme', 'globex'],
    ['globex', 'acme'],
  ] as const) {
    it(`a mail of ${waiting} is sent in its turn, however many mails of ${flooding} have waited for longer`, async () => {
      const { id, admin: flooded } = world[flooding];
      const held = mail.hold(flooded.email);
      const countFlooded = () => mail.messagesTo(flooded.email).length;
      const first = countFlooded();
      await controlSql(
        world,
        `insert into mail_deliveries (link, tenant_id, user_id, kind, about, expires_at)
         select gen_random_uuid(), ?::bigint, u.id, 'webhook_disabled', jsonb_build_object('host', n, 'reason', 'gone'),
                now() + interval '1 day'
           from generate_series(1, 30) n, users u where u.tenant_id = ?::bigint and u.email = ?`,
        [id, id, flooded.email],
      );
      await eventually(() => countFlooded() === first + maxConnections);

      const { guid, admin: owner } = world[waiting];
      const earlier = mail.messagesTo(owner.email).length;
      const asked = await world.anonymous.post(
        '/api/v1/auth/reset-password',
        { email: owner.email },
        { 'X-Tenant': guid },
      );
      expect(asked.status).to.equal(202);
      held.release(); // those that have arrived are accepted; later ones are held again
      const heldAgain = mail.hold(flooded.email);

      await eventually(() => mail.messagesTo(owner.email).length === earlier + 1);
      expect(countFlooded() - first).to.be.at.most(2 * maxConnections);
      heldAgain.release();
      await mailsSettled(world);
    });
  }
});
