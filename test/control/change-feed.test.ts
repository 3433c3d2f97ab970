import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { expect } from 'chai';
import { createAnnouncer } from '../../src/control/announcer.ts';
import { ControlCache } from '../../src/control/cache.ts';
import { ChangeFeed } from '../../src/control/change-feed.ts';
import { changeTopics } from '../../src/control/change-topics.ts';
import { withConnection } from '../../src/postgres/connection.ts';
import type { ApiResponse, Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { postgresUrl } from '../support/test-server.ts';
import { createWorld, type World } from '../support/world.ts';

const path = '/api/v1/EntityStatus';
const atOnceMs = 1_000; // what is promised of a revocation

describe('The change feed', () => {
  let world: World;
  let controlName: string;
  /** Two processes of the service. */
  let processes: { url: string; managementPort: number }[];

  before(async () => {
    world = await createWorld();
    controlName = decodeURIComponent(new URL(world.installation.controlUrl).pathname.slice(1));
    const another = await world.startAnotherServer();
    processes = [
      { url: world.url, managementPort: world.service.managementPort },
      { url: another.url, managementPort: another.service.managementPort },
    ];
  });
  after(() => world.close());

  const control = (text: string, values: unknown[] = []) => world.control.em.fork().execute(text, values);

  describe('makes a change by plain SQL count in every process within a second:', () => {
    it('a session revoked', async () => {
      const client = await warm(await world.login(world.acme));
      await control('update sessions set revoked_at = now() where id = ?', [sessionOf(client)]);
      await everywhere(client, 401, 'invalid_token');
    });

    it('a session deleted', async () => {
      const client = await warm(await world.login(world.acme));
      await control('delete from sessions where id = ?', [sessionOf(client)]);
      await everywhere(client, 401, 'invalid_token');
    });

    it('a user disabled, and enabled again', async () => {
      const client = await warm(await world.loginAs(world.acme, { permissions: ['full.read'] }));
      const disable = (value: string) =>
        control(`update users set disabled_at = ${value} where id = (select user_id from sessions where id = ?)`, [
          sessionOf(client),
        ]);
      await disable('now()');
      await everywhere(client, 401, 'invalid_token');
      await disable('null');
      await everywhere(client, 200);
    });

    it('a user of another scope and entity', async () => {
      const client = await warm(await world.loginAs(world.acme, { permissions: ['full.read'], scope: 'All' }));
      await control(
        `update users set scope = 'Self', entity_id = 4711 where id = (select user_id from sessions where id = ?)`,
        [sessionOf(client)],
      );
      await everywhere(client, 200, { scope: 'Self', userEntityId: 4711 }, '/api/v1/auth/me');
    });

    it('a permission taken from a role, and given back', async () => {
      const client = await warm(await world.loginAs(world.acme, { permissions: ['full.read'] }));
      const grant = (permissions: string) =>
        control(
          `update roles set permissions = ?::text[] where id =
            (select role_id from users join sessions on user_id = users.id where sessions.id = ?)`,
          [permissions, sessionOf(client)],
        );
      await grant('{}');
      await everywhere(client, 403, 'forbidden');
      await grant('{full.read}');
      await everywhere(client, 200);
    });

    it('a tenant renamed, and given a feature', async () => {
      const client = await warm(await world.login(world.globex), '/api/v1/auth/me');
      await control(`update tenants set name = 'Globex Corporation', features = '{selfRegistration}' where id = ?`, [
        world.globex.id,
      ]);
      await everywhere(
        client,
        200,
        { tenantName: 'Globex Corporation', features: ['selfRegistration'] },
        '/api/v1/auth/me',
      );
    });

    it('a signing key retired and replaced: it verifies still, and the new one signs', async () => {
      const client = await warm(await world.login(world.globex));
      const { globex, installation } = world;
      const kid = `new-key-of-${globex.id}`;
      await withConnection(installation.controlUrl, async session => {
        await session.query('begin');
        await session.query(`update signing_keys set status = 'retiring' where tenant_id = $1`, [globex.id]);
        await session.query('insert into signing_keys (kid, tenant_id, secret) values ($1, $2, $3)', [
          kid,
          globex.id,
          installation.secrets.seal(Buffer.alloc(64, 7), `signing_key:${globex.guid}:${kid}`),
        ]);
        await session.query('commit');
      });
      for (const { url } of processes) {
        await eventually(async () => {
          const login = await world.anonymous
            .at(url)
            .post('/api/v1/auth/login', globex.admin, { 'X-Tenant': globex.guid });
          return part(login.body.accessToken, 0).kid === kid;
        }, atOnceMs);
      }
      await everywhere(client, 200);
      await control(`update signing_keys set status = 'disabled' where tenant_id = ? and kid <> ?`, [globex.id, kid]);
      await everywhere(client, 401, 'invalid_token');
    });

    it('a signing key deleted', async () => {
      const client = await warm(await world.login(world.globex));
      await control('delete from signing_keys where kid = ?', [part(client.tokens?.accessToken, 0).kid]);
      await everywhere(client, 401, 'invalid_token');
    });

    it('a server whose address cannot be read, which touches all tenants on it', async () => {
      const client = await warm(await world.login(world.acme));
      await control(`update servers set admin_url = 'not sealed'`);
      await everywhere(client, 503, 'unavailable');
      await control('update servers set admin_url = null');
      await everywhere(client, 200);
    });

    it('every session gone at once', async () => {
      const client = await warm(await world.login(world.acme));
      await control('truncate sessions');
      await everywhere(client, 401, 'invalid_token');
    });
  });

  it('lets requests be answered from memory: they ask the control database nothing', async () => {
    const client = await warm(await world.login(world.acme));
    await whileLocked(['servers', 'tenants', 'signing_keys', 'roles', 'users', 'sessions'], async () => {
      for (let i = 0; i < 20; i++) await atAll(client, answer => expect(answer.status).to.equal(200));
    });
  });

  describe('when it is down', () => {
    afterEach(async () => {
      await connectionsAllowed(true);
      await eventually(async () => (await readiness()).every(status => status === 200), 5_000);
    });

    for (const [name, change, status, code] of [
      ['a revoked session', 'update sessions set revoked_at = now() where id = ?', 401, 'invalid_token'],
      [
        'a disabled user',
        'update users set disabled_at = now() where id = (select user_id from sessions where id = ?)',
        401,
        'invalid_token',
      ],
      [
        'a role without its permissions',
        `update roles set permissions = '{}' where id =
          (select role_id from users join sessions on user_id = users.id where sessions.id = ?)`,
        403,
        'forbidden',
      ],
      [
        'a suspended tenant',
        `update tenants set status = 'suspended' where id = (select tenant_id from sessions where id = ?)`,
        403,
        'tenant_inactive',
      ],
    ] as const) {
      it(`refuses ${name} with the very next request`, async () => {
        const client = await warm(await world.loginAs(world.acme, { permissions: ['full.read'] }));
        await goDown();
        await atAll(client, answer => expect(answer.status).to.equal(200));
        await control(change, [sessionOf(client)]);
        await atAll(client, answer => expect([answer.status, answer.body.code]).to.deep.equal([status, code]));
        await control(`update tenants set status = 'active' where status = 'suspended'`);
      });
    }

    it('says that it is not ready, and comes back by itself', async () => {
      await goDown();
      expect(await readiness()).to.deep.equal([503, 503]);
      await connectionsAllowed(true);
      await eventually(async () => (await readiness()).every(status => status === 200), 2_000);
      expect(await listeners()).to.have.length(2);
    });

    it('forgets all that was kept before it is trusted again', async () => {
      const client = await warm(await world.login(world.acme));
      await goDown();
      await control('update sessions set revoked_at = now() where id = ?', [sessionOf(client)]);
      await connectionsAllowed(true);
      await eventually(async () => (await readiness()).every(status => status === 200), 2_000);
      await atAll(client, answer => expect(answer.status).to.equal(401));
    });
  });

  it('is not believed when it is silent: a revocation that it does not tell counts within a second', async () => {
    const client = await warm(await world.login(world.acme));
    const pids = await listeners();
    expect(pids).to.have.length(2);
    try {
      for (const pid of pids) process.kill(pid, 'SIGSTOP');
      await atAll(client, answer => expect(answer.status).to.equal(200));
      await control('update sessions set revoked_at = now() where id = ?', [sessionOf(client)]);
      await everywhere(client, 401, 'invalid_token');
    } finally {
      for (const pid of pids) process.kill(pid, 'SIGCONT');
    }
    // Leaves the feeds on new connections, whether or not they have given up the old ones already.
    await endConnections(pids);
    await eventually(async () => {
      const now = await listeners();
      return now.length === 2 && !now.some(pid => pids.includes(pid));
    }, 2_000);
    await eventually(async () => (await readiness()).every(status => status === 200), 2_000);
  });

  it('lets an unknown tenant be refused from memory, until there is such a tenant', async () => {
    const initech = await world.provision('initech');
    const ask = async (): Promise<(ApiResponse & { url: string })[]> =>
      Promise.all(
        processes.map(async ({ url }) => ({
          url,
          ...(await world.anonymous.at(url).post('/api/v1/auth/login', initech.admin, { 'X-Tenant': initech.guid })),
        })),
      );
    const codes = async () => (await ask()).map(({ body }) => body.code);
    expect((await ask()).map(({ status }) => status)).to.deep.equal([200, 200]);

    await withConnection(world.installation.controlUrl, async session => {
      const kept = [
        ['tenants', 'id'],
        ['signing_keys', 'tenant_id'],
        ['roles', 'tenant_id'],
        ['users', 'tenant_id'],
      ];
      for (const [table, key] of kept)
        await session.query(
          `create temporary table kept_${table} as select * from ${table} where ${key} = ${initech.id}`,
        );
      await session.query('delete from tenants where id = $1', [initech.id]);
      await eventually(async () => (await codes()).every(code => code === 'tenant_required'), atOnceMs);

      await whileLocked(['tenants', 'signing_keys'], async () => {
        for (let i = 0; i < 50; i++) expect(await codes()).to.deep.equal(['tenant_required', 'tenant_required']);
      });

      await session.query('begin');
      for (const [table] of kept)
        await session.query(`insert into ${table} overriding system value select * from kept_${table}`);
      await session.query('commit');
    });
    await eventually(async () => (await ask()).every(({ status }) => status === 200), atOnceMs);
  });

  describe('as a part', () => {
    it('keeps no answer that was read before a change and came after it', async () => {
      const feed = new ChangeFeed({
        url: world.installation.controlUrl,
        announce: createAnnouncer(world.control),
        log: world.log,
      });
      const answers: ((value: object) => void)[] = [];
      const cache = new ControlCache({
        feed,
        topic: changeTopics.sessions,
        max: 10,
        ttlMs: 60_000,
        load: () => new Promise<object>(resolve => answers.push(resolve)),
      });
      const heard = new Promise(resolve => feed.subscribe(changeTopics.roles, key => key === 'end' && resolve(key)));
      await feed.start();
      try {
        const early = cache.get('key');
        const shared = cache.get('key');
        await control(`select pg_notify('control_changes', 'sessions:key'), pg_notify('control_changes', 'roles:end')`);
        await heard;
        const late = cache.get('key');
        expect(answers).to.have.length(2);
        expect(cache.getCached('key'), 'nothing is loaded yet').to.equal(undefined);
        answers[0]?.({ revoked: false });
        expect([await early, await shared]).to.deep.equal([{ revoked: false }, { revoked: false }]);
        expect(cache.getCached('key'), 'what came too late').to.equal(undefined);
        answers[1]?.({ revoked: true });
        expect(await late).to.deep.equal({ revoked: true });
        expect(cache.getCached('key')?.value).to.equal(await late);
        expect(await cache.get('key')).to.deep.equal({ revoked: true });
        expect(answers).to.have.length(2);
      } finally {
        await feed.stop();
      }
      expect(feed.current).to.equal(false);
      expect(cache.getCached('key'), 'without a feed').to.equal(undefined);
    });

    it('keeps no failure: the next look-up asks again', async () => {
      const feed = new ChangeFeed({
        url: world.installation.controlUrl,
        announce: createAnnouncer(world.control),
        log: world.log,
      });
      let asked = 0;
      const cache = new ControlCache({
        feed,
        topic: changeTopics.sessions,
        max: 10,
        ttlMs: 60_000,
        load: async () => {
          asked++;
          if (asked === 1) throw new Error('the control database is away');
          return { asked };
        },
      });
      await feed.start();
      try {
        expect(await cache.get('key').catch((error: Error) => error.message)).to.equal('the control database is away');
        expect(await cache.get('key')).to.deep.equal({ asked: 2 });
      } finally {
        await feed.stop();
      }
    });

    it('leaves no connection when it is stopped while it comes back', async () => {
      const line = await startLine(world.installation.controlUrl);
      const feed = new ChangeFeed({ url: line.url, announce: createAnnouncer(world.control), log: world.log });
      try {
        await feed.start();
        expect(feed.current).to.equal(true);
        line.hold();
        line.cut();
        await line.held();
        await feed.stop();
        line.letThrough();
        await eventually(() => line.open() === 0, 2_000);
        expect(feed.current).to.equal(false);
      } finally {
        await line.close();
      }
    });
  });

  /** Asks both processes, so that they keep what they need to answer. */
  /** Called so often at both that whatever may be kept of the token or its user is kept. */
  async function warm(client: Client, target = path): Promise<Client> {
    for (let i = 0; i < 4; i++) await atAll(client, answer => expect(answer.status).to.equal(200), target);
    return client;
  }

  /** One request to each process. */
  async function atAll(client: Client, check: (answer: ApiResponse) => void, target = path): Promise<void> {
    for (const { url } of processes) check(await client.at(url).get(target));
  }

  /** Both processes answer so, at the latest a second from now. */
  async function everywhere(client: Client, status: number, body: string | object = {}, target = path): Promise<void> {
    const expected = typeof body === 'string' ? { code: body } : body;
    await eventually(async () => {
      await atAll(
        client,
        answer => {
          expect(answer.status).to.equal(status);
          for (const [name, value] of Object.entries(expected)) expect(answer.body[name]).to.deep.equal(value);
        },
        target,
      );
      return true;
    }, atOnceMs);
  }

  /** Holds locks with which every query of these tables waits. */
  async function whileLocked(tables: string[], work: () => Promise<void>): Promise<void> {
    await withConnection(world.installation.controlUrl, async session => {
      await session.query('begin');
      await session.query(`lock table ${tables.join(', ')} in access exclusive mode`);
      await work();
      await session.query('rollback');
    });
  }

  /** Ends the feeds of both processes and keeps them from coming back; other connections stay. */
  async function goDown(): Promise<void> {
    const lost = () => world.logs.filter(line => line.includes('"change_feed_lost"')).length;
    const before = lost();
    await connectionsAllowed(false);
    const pids = await listeners();
    expect(pids).to.have.length(2);
    await endConnections(pids);
    await eventually(() => lost() === before + 2, 2_000);
  }

  function endConnections(pids: number[]): Promise<unknown> {
    return operator(`select pg_terminate_backend(pid, 2000) from unnest('{${pids}}'::int[]) pid`);
  }

  function connectionsAllowed(allowed: boolean): Promise<unknown> {
    return operator(`alter database "${controlName}" allow_connections ${allowed}`);
  }

  /** The server's processes that the feeds are connected to. */
  async function listeners(): Promise<number[]> {
    const rows = await operator<{ pid: number }>(
      `select pid from pg_stat_activity where application_name = 'backoffice-change-feed' and datname = '${controlName}'`,
    );
    return rows.map(({ pid }) => pid);
  }

  function readiness(): Promise<number[]> {
    return Promise.all(
      processes.map(
        async ({ managementPort }) => (await fetch(`http://127.0.0.1:${managementPort}/health/ready`)).status,
      ),
    );
  }
});

function operator<Row extends object>(statement: string): Promise<Row[]> {
  return withConnection(postgresUrl(), async client => (await client.query(statement)).rows as Row[]);
}

function part(token: string | undefined, index: 0 | 1): Record<string, unknown> {
  return JSON.parse(Buffer.from(token?.split('.')[index] ?? '', 'base64url').toString());
}

function sessionOf({ tokens }: Client): unknown {
  return part(tokens?.accessToken, 1).sid;
}

/** A line to the database that can be cut, and that can hold new connections back before the server sees them. */
async function startLine(target: string) {
  const { hostname, port } = new URL(target);
  const sockets = new Set<Socket>();
  let holding = false;
  let waiting: (() => void)[] = [];
  let arrived = () => {};
  const arrival = new Promise<void>(resolve => {
    arrived = resolve;
  });
  const server = createServer(socket => {
    sockets.add(socket);
    socket.on('error', () => {}).on('close', () => sockets.delete(socket));
    const pass = (): void => {
      const upstream = connect(Number(port), hostname);
      upstream.on('error', () => socket.destroy()).on('close', () => socket.destroy());
      socket.on('close', () => upstream.destroy());
      socket.pipe(upstream).pipe(socket);
    };
    if (!holding) return pass();
    waiting.push(pass);
    arrived();
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = new URL(target);
  url.hostname = '127.0.0.1';
  url.port = String((server.address() as { port: number }).port);
  const cut = (): void => {
    for (const socket of sockets) socket.destroy();
  };
  return {
    url: url.href,
    cut,
    hold: () => {
      holding = true;
    },
    held: () => arrival,
    letThrough: () => {
      holding = false;
      for (const pass of waiting) pass();
      waiting = [];
    },
    open: () => sockets.size,
    close: async () => {
      cut();
      server.close();
      await once(server, 'close');
    },
  };
}
