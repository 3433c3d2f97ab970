import { expect } from 'chai';
import {
  accessTokenLifetimeSeconds,
  clockSkewSeconds,
} from '../../../src/control/token-lifetime.ts';
import { addClient } from '../../../src/operator/credentials/clients.ts';
import type { Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { beginEra, cursorOfNow, settle } from '../../support/settle.ts';
import { controlSql, sql, useLogin, useWorld } from '../../support/world.ts';
import { type Following, follow } from './follow.ts';

/**
 * Follows countries. Returns the text of the stream until its comment, and what comes with it.
 */
async function followQuietly(client: Client): Promise<{ text: Promise<string> }> {
  const abort = new AbortController();
  const response = await fetch(`${client.url}/api/v1/Changes/stream?resource=Country`, {
    headers: { Authorization: `Bearer ${client.tokens?.accessToken}` },
    signal: abort.signal,
  });
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();

  const readText = async (): Promise<string> => {
    let text = '';
    while (!text.includes('nothing new')) text += (await reader?.read())?.value;
    abort.abort();
    return text;
  };
  return { text: readText() };
}

describe('the stream of changes', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  let open: Following[];

  beforeEach(() => (open = []));
  afterEach(() => {
    for (const each of open) each.close();
  });

  /** A stream that begins now sends the changes that are not final. */
  const settleAll = () => settle(world.acme, world.globex);

  async function start(
    client = admin,
    query = '',
    headers: Record<string, string> = {},
  ): Promise<Following> {
    if (!headers['Last-Event-ID']) await settleAll();
    const following = await follow(client, query, headers);
    open.push(following);
    return following;
  }
  const create = (Name: string, client = admin) => client.post('/api/v1/OrderStatuses', { Name });
  const nameOf = async (following: Following) => (await following.next())?.data?.Record?.Name;

  it('a change arrives as an event with its cursor as id, and no proxy may buffer or change the stream', async () => {
    const following = await start();
    expect(following.status).to.equal(200);
    expect(following.headers.get('x-accel-buffering')).to.equal('no');
    expect(following.headers.get('cache-control')).to.contain('no-transform');
    expect(following.headers.get('content-encoding')).to.equal(null);
    const { body } = await create('streamed');
    const event = await following.next();
    expect(event?.data).to.include({ Type: 'order_status.created', Key: String(body.Id) });
    expect(event?.id).to.equal(event?.data.Id);
  });

  it('changes by another process or psql arrive without a write of this process', async () => {
    const other = await world.startAnotherServer();
    const following = await start(admin, '?include=record');
    await create('of the other process', admin.at(other.url));
    expect(await nameOf(following)).to.equal('of the other process');
    await sql(world.acme, `insert into order_statuses (name) values ('of psql')`);
    expect(await nameOf(following)).to.equal('of psql');
  });

  it('a stream that is resumed after its last event loses and repeats nothing', async () => {
    const expected = Array.from({ length: 60 }, (_, i) => `number ${i}`);
    const cursor = await cursorOfNow(admin, world.acme);
    const writing = (async () => {
      for (const name of expected) await create(name);
    })();

    let following = await start(admin, '?include=record');
    const names: string[] = [];

    const { changes } = {
      changes: (await admin.get(`/api/v1/Changes?after=${cursor}&limit=1000&include=record`)).body,
    };
    for (const { Record } of changes) if (expected.includes(Record?.Name)) names.push(Record.Name);
    const resume = changes.at(-1)?.Id ?? cursor;

    following.close();
    following = await start(admin, '?include=record', { 'Last-Event-ID': resume });
    while (names.length < expected.length) {
      names.push(await nameOf(following));
      if (names.length % 7 > 0) continue;
      following.close();
      following = await start(admin, '?include=record', {
        'Last-Event-ID': following.lastId ?? '',
      });
    }

    await writing;
    expect(names).to.deep.equal(expected);
  });

  // The service sends the comment when a stream had no event for 15 s.
  it('a quiet stream sends a comment without an empty line, and an event without data only where its place has moved', async () => {
    const globex = await world.login(world.globex);
    await settleAll();
    const untouched = await followQuietly(globex);
    const passedBy = await followQuietly(admin);
    const { body } = await create('passed by');

    expect(await untouched.text).to.match(/^retry: \d+\nid: \S+\n\n: nothing new\n$/);
    const [, began = '', moved = ''] =
      /^retry: \d+\nid: (\S+)\n\n: nothing new\nid: (\S+)\n\n$/.exec(await passedBy.text) ?? [];

    const before = await start(admin, '', { 'Last-Event-ID': began });
    const after = await start(admin, '', { 'Last-Event-ID': moved });
    await create('later');
    expect((await before.next())?.data.Key).to.equal(String(body.Id));
    expect((await after.next())?.data.Key).not.to.equal(String(body.Id));
  });

  it('nobody receives the changes of another tenant', async () => {
    const globex = await world.login(world.globex);
    const [ofAcme, ofGlobex] = [
      await start(admin, '?include=record'),
      await start(globex, '?include=record'),
    ];
    await create('of globex', globex);
    await create('of acme');
    expect(await nameOf(ofAcme)).to.equal('of acme');
    expect(await nameOf(ofGlobex)).to.equal('of globex');
  });

  it('a stream ends with an event that says why when its session is revoked, or its user loses a permission', async () => {
    const [session, permission] = await Promise.all(
      [1, 2].map(() => world.loginAs(world.acme, { permissions: ['full.read'] })),
    );
    const [one, two] = [await start(session), await start(permission)];

    await session?.post('/api/v1/auth/logout');
    const me = (await permission?.get('/api/v1/auth/me'))?.body;
    await controlSql(
      world,
      `update roles set permissions = '{}' where id = (select role_id from users where guid = ?)`,
      [me.userGuid],
    );

    for (const following of [one, two]) {
      expect(await following.next()).to.deep.include({
        event: 'end',
        data: { Reason: 'access_changed' },
      });
      expect(await following.next()).to.equal(undefined);
      expect(following.rest).to.equal('');
    }
  });

  it('a stream ends when a request with its token would be refused: of a disabled key, or legacy of an isolated tenant', async () => {
    const initech = await world.provision('initech');
    const keyed = await start(await world.login(initech));

    await controlSql(world, `update tenants set features = '{legacyTokens}' where id = ?`, [
      initech.id,
    ]);
    const client = await addClient(
      world.installation,
      'initech',
      initech.admin.email,
      'Price list',
    );
    const basic = `Basic ${Buffer.from(`${client.id}:${client.secret}`).toString('base64')}`;
    const issued = await eventually(async () => {
      const response = await world.anonymous.get('/api/Data/GenerateToken', {
        Authorization: basic,
      });
      return response.status === 200 && response.body;
    });

    const legacy = await start(world.anonymous.withToken(issued.token));
    const globex = await start(await world.login(world.globex));

    await controlSql(world, `update signing_keys set status = 'disabled' where tenant_id = ?`, [
      initech.id,
    ]);
    await controlSql(world, 'update tenants set isolated = true where id = ?', [initech.id]);

    for (const following of [keyed, legacy]) {
      expect(await following.next()).to.deep.include({
        event: 'end',
        data: { Reason: 'access_changed' },
      });
    }

    await create('of another tenant', await world.login(world.globex));
    expect((await globex.next())?.data, 'the stream of another tenant').to.include({
      Resource: 'OrderStatus',
    });
  });

  it('a stream with a legacy token ends when the token expires', async () => {
    await controlSql(world, `update tenants set features = '{legacyTokens}' where id = ?`, [
      world.acme.id,
    ]);

    const client = await addClient(
      world.installation,
      'acme',
      world.acme.admin.email,
      'Price list',
    );
    const basic = `Basic ${Buffer.from(`${client.id}:${client.secret}`).toString('base64')}`;

    const { body } = await eventually(async () => {
      const response = await world.anonymous.get('/api/Data/GenerateToken', {
        Authorization: basic,
      });
      return response.status === 200 && response;
    });

    const following = await start(world.anonymous.withToken(body.token));
    world.clock.offsetSeconds = 91 * 86_400;
    try {
      expect(await following.next()).to.deep.include({
        event: 'end',
        data: { Reason: 'token_expired' },
      });
    } finally {
      world.clock.offsetSeconds = 0;
    }
  });

  it('a stream ends with an event that says so when its access token expires', async () => {
    const following = await start(await world.login(world.acme));
    world.clock.offsetSeconds = 3_600;
    try {
      expect(await following.next()).to.deep.include({
        event: 'end',
        data: { Reason: 'token_expired' },
      });
    } finally {
      world.clock.offsetSeconds = 0;
    }
  });

  it('a stream ends when requests with its token begin to be refused, and not before', async () => {
    const user = await world.login(world.acme);
    const other = await world.login(world.globex);
    const following = await start(user, '?resource=Country');
    const create = (client: Client, CountryCode: string) =>
      client.post('/api/v1/Countries', { CountryCode, CountryName: CountryCode });
    try {
      world.clock.offsetSeconds = accessTokenLifetimeSeconds + 1;
      expect((await create(other, 'OTHER')).status).to.equal(201);
      expect((await create(user, 'SKEW')).status, 'within the skew').to.equal(201);
      expect((await following.next())?.data.Key).to.equal('SKEW');

      world.clock.offsetSeconds = accessTokenLifetimeSeconds + clockSkewSeconds + 1;
      expect((await following.next())?.data).to.deep.equal({ Reason: 'token_expired' });
      expect((await user.get('/api/v1/auth/me')).body.code).to.equal('token_expired');
    } finally {
      world.clock.offsetSeconds = 0;
    }
  });

  it('a user has at most 5 streams, and a closed one makes room', async () => {
    const user = await world.loginAs(world.acme, {});
    for (let i = 0; i < 5; i++) expect((await start(user)).status).to.equal(200);
    const sixth = await start(user);
    expect(sixth.status).to.equal(429);
    expect(sixth.problem?.code).to.equal('rate_limited');
    expect(sixth.headers.get('retry-after')).to.equal('15');
    open[0]?.close();
    await eventually(async () => (await start(user)).status === 200);
  });

  it('a stream that nobody reads for a while delays no other one, and goes on without a gap', async () => {
    const [slow, quick] = [
      await start(admin, '?include=record'),
      await start(admin, '?include=record'),
    ];

    const count = 600; // 2.4 MB, more than sockets and a page in memory hold
    await sql(
      world.acme,
      `insert into system_options (system_option_type_id, value)
       select n, repeat('x', 4000) from generate_series(1, ${count}) n`,
    );

    for (const following of [quick, slow]) {
      for (let n = 1; n <= count; n++) {
        expect((await following.next())?.data.Record.SystemOptionTypeId).to.equal(n);
      }
    }
  });

  it('streams that nobody reads hold a page of bounded bytes each, others are served, and none loses a change', async () => {
    const globex = await world.login(world.globex);
    const users = await Promise.all(
      Array.from({ length: 2 }, () =>
        world.loginAs(world.acme, {
          permissions: ['full.read'],
        }),
      ),
    );

    const unread: Following[] = [];
    for (const user of users) {
      for (let i = 0; i < 5; i++) unread.push(await start(user, '?include=record'));
    }

    const ofGlobex = await start(globex, '?include=record');
    const count = 500; // of 16 KB, which is more than the buffers of a connection hold
    await sql(
      world.acme,
      `insert into activities (activity_code, comment, recorded_by, recorded_from)
       select n, repeat('🦄', 4000), 1, '127.0.0.1' from generate_series(1, ${count}) n`,
    );

    const mostUnsent = unread.length * 100_000;
    await eventually(async () => {
      const bytes = await unsentBytes();
      expect(bytes).to.be.at.most(mostUnsent);
      expect(bytes).to.be.above(mostUnsent / 4);
      return true;
    });
    await create('meanwhile', globex);
    expect(await nameOf(ofGlobex)).to.equal('meanwhile');
    expect(await unsentBytes()).to.be.at.most(mostUnsent);

    const read = async (following: Following) => {
      for (let n = 1; n <= count; n++) {
        expect((await following.next())?.data.Record.ActivityCode).to.equal(n);
      }
    };
    await Promise.all(unread.map(read));
    await eventually(async () => (await unsentBytes()) === 0);
  });

  /** Bytes of responses that clients have not taken, as the metrics say it. */
  async function unsentBytes(): Promise<number> {
    const response = await fetch(`http://127.0.0.1:${world.service.managementPort}/metrics`);
    return Number(/^unsent_response_bytes (\d+)$/m.exec(await response.text())?.[1]);
  }

  it('an expired cursor gets 410 before the stream begins, and a wrong one 400', async () => {
    await create('before the era');
    await settleAll();
    const cursor = (await admin.get('/api/v1/Changes?limit=1')).body[0].Id;
    await beginEra(world.acme);
    const expired = await start(admin, '', { 'Last-Event-ID': cursor });
    expect(expired.status).to.equal(410);
    expect(expired.problem?.code).to.equal('cursor_expired');
    expect((await start(admin, '', { 'Last-Event-ID': 'wrong' })).status).to.equal(400);
  });

  it('a stream ends with an event that says so when its data are replaced', async () => {
    const following = await start(admin);
    await beginEra(world.acme);
    await create('of the next era');

    expect(await following.next()).to.deep.include({
      event: 'end',
      data: { Reason: 'cursor_expired' },
    });
    const resumed = await start(admin, '', { 'Last-Event-ID': String(following.lastId) });
    expect(resumed.problem?.code).to.equal('cursor_expired');
  });

  it('a stop of the service ends each stream after a whole event, with the time after which to come back', async () => {
    const { service, url } = await world.startAnotherServer();
    const following = await start(admin.at(url));
    expect(await service.stop()).to.equal(true);
    const last = await following.next();
    expect(last).to.deep.include({ event: 'end', data: { Reason: 'stopping' } });
    expect(Number(last?.retry)).to.be.within(1_000, 5_000);
    expect(await following.next()).to.equal(undefined);
    expect(following.rest).to.equal('');
  });
});
