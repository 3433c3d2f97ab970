import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { expect } from 'chai';
import { ControlCache } from '../../src/control/cache.ts';
import { changeTopics } from '../../src/control/change-topics.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import type { ApiResponse, Client } from '../support/client.ts';
import { announcedMs, eventually } from '../support/eventually.ts';
import { createOwnFeed } from '../support/own-feed.ts';
import { postgresUrl } from '../support/test-server.ts';
import { controlSql, useWorld } from '../support/world.ts';

const path = '/api/v1/EntityStatus';

describe('change feed', () => {
  const world = useWorld();
  let controlName: string;
  /** Two servers of the service. */
  let servers: { url: string; managementPort: number }[];

  before(async () => {
    controlName = decodeURIComponent(new URL(world.installation.controlUrl).pathname.slice(1));
    const another = await world.startAnotherServer();
    servers = [
      { url: world.url, managementPort: world.service.managementPort },
      { url: another.url, managementPort: another.service.managementPort },
    ];
  });

  const control = (text: string, values: unknown[] = []) => controlSql(world, text, values);

  describe('changes by SQL', () => {
    it('a session revoked by SQL is rejected by all servers', async () => {
      const client = await warm(await world.login(world.acme));
      await control('update sessions set revoked_at = now() where id = ?', [sessionOf(client)]);
      await expectEverywhere(client, 401, 'invalid_token');
    });

    it('a session deleted by SQL is rejected by all servers', async () => {
      const client = await warm(await world.login(world.acme));
      await control('delete from sessions where id = ?', [sessionOf(client)]);
      await expectEverywhere(client, 401, 'invalid_token');
    });

    it('disabling and enabling a user by SQL takes effect on all servers', async () => {
      const client = await warm(await world.loginAs(world.acme, { permissions: ['full.read'] }));
      const disable = (value: string) =>
        control(
          `update users set disabled_at = ${value} where id = (select user_id from sessions where id = ?)`,
          [sessionOf(client)],
        );

      await disable('now()');
      await expectEverywhere(client, 401, 'invalid_token');

      await disable('null');
      await expectEverywhere(client, 200);
    });

    it('a change of the scope and entity of a user by SQL takes effect on all servers', async () => {
      const client = await warm(
        await world.loginAs(world.acme, { permissions: ['full.read'], scope: 'All' }),
      );
      await control(
        `update users set scope = 'Self', entity_id = 4711, entity_since = now() where id = (select user_id from sessions where id = ?)`,
        [sessionOf(client)],
      );
      await expectEverywhere(client, 200, { scope: 'Self', userEntityId: 4711 }, '/api/v1/auth/me');
    });

    it('revoking and granting a permission by SQL takes effect on all servers', async () => {
      const client = await warm(await world.loginAs(world.acme, { permissions: ['full.read'] }));
      const setPermissions = (permissions: string) =>
        control(
          `update roles set permissions = ?::text[] where id =
            (select role_id from users join sessions on user_id = users.id where sessions.id = ?)`,
          [permissions, sessionOf(client)],
        );

      await setPermissions('{}');
      await expectEverywhere(client, 403, 'forbidden');

      await setPermissions('{full.read}');
      await expectEverywhere(client, 200);
    });

    it('a new name and feature of a tenant by SQL take effect on all servers', async () => {
      const client = await warm(await world.login(world.globex), '/api/v1/auth/me');
      await control(
        `update tenants set name = 'Globex Corporation', features = '{selfRegistration}' where id = ?`,
        [world.globex.id],
      );

      await expectEverywhere(
        client,
        200,
        { tenantName: 'Globex Corporation', features: ['selfRegistration'] },
        '/api/v1/auth/me',
      );
    });

    it('a signing key added by SQL signs on all servers, and the retiring key still verifies', async () => {
      const client = await warm(await world.login(world.globex));
      const { globex, installation } = world;
      const kid = `new-key-of-${globex.id}`;

      await withConnection(installation.controlUrl, async session => {
        await session.query('begin');
        await session.query(`update signing_keys set status = 'retiring' where tenant_id = $1`, [
          globex.id,
        ]);
        await session.query(
          'insert into signing_keys (kid, tenant_id, secret) values ($1, $2, $3)',
          [
            kid,
            globex.id,
            installation.secrets.seal(Buffer.alloc(64, 7), `signing_key:${globex.guid}:${kid}`),
          ],
        );
        await session.query('commit');
      });

      for (const { url } of servers) {
        await eventually(async () => {
          const login = await world.anonymous
            .at(url)
            .post('/api/v1/auth/login', globex.admin, { 'X-Tenant': globex.guid });
          return part(login.body.accessToken, 0).kid === kid;
        }, announcedMs);
      }
      await expectEverywhere(client, 200);

      await control(
        `update signing_keys set status = 'disabled' where tenant_id = ? and kid <> ?`,
        [globex.id, kid],
      );
      await expectEverywhere(client, 401, 'invalid_token');
    });

    it('a signing key deleted by SQL verifies no token on any server', async () => {
      const tenant = await world.provision('hooli');
      const client = await warm(await world.login(tenant));
      await control('delete from signing_keys where kid = ?', [
        part(client.tokens?.accessToken, 0).kid,
      ]);
      await expectEverywhere(client, 401, 'invalid_token');
    });

    it('an unreadable address of a database server makes its tenants unavailable', async () => {
      const client = await warm(await world.login(world.acme));
      await control(
        `update servers set admin_url = convert_to(key_fingerprint || 'not sealed', 'UTF8') from installation`,
      );
      await expectEverywhere(client, 503, 'unavailable');
      await control('update servers set admin_url = null');
      await expectEverywhere(client, 200);
    });

    it('a truncate of the sessions ends every session on all servers', async () => {
      const client = await warm(await world.login(world.acme));
      await control('truncate sessions');
      await expectEverywhere(client, 401, 'invalid_token');
    });
  });

  it('while the change feed is current, requests with cached entries do not query the control database', async () => {
    const client = await warm(await world.login(world.acme));
    await whileLocked(
      ['servers', 'tenants', 'signing_keys', 'roles', 'users', 'sessions'],
      async () => {
        await eventuallyInRow(20, () =>
          requestAll(client, response => expect(response.status).to.equal(200)),
        );
      },
    );
  });

  describe('change feed that is down', () => {
    afterEach(async () => {
      await allowConnections(true);
      await eventually(
        async () => (await readiness()).every(status => status === 200),
        announcedMs,
      );
    });

    for (const [name, change, status, code] of [
      [
        'a revoked session',
        'update sessions set revoked_at = now() where id = ?',
        401,
        'invalid_token',
      ],
      [
        'a disabled user',
        'update users set disabled_at = now() where id = (select user_id from sessions where id = ?)',
        401,
        'invalid_token',
      ],
      [
        'a user whose role lost its permissions',
        `update roles set permissions = '{}' where id =
          (select role_id from users join sessions on user_id = users.id where sessions.id = ?)`,
        403,
        'forbidden',
      ],
      [
        'a user of a suspended tenant',
        `update tenants set status = 'suspended' where id = (select tenant_id from sessions where id = ?)`,
        403,
        'tenant_inactive',
      ],
    ] as const) {
      it(`without the change feed, the next request of ${name} is rejected`, async () => {
        const client = await warm(await world.loginAs(world.acme, { permissions: ['full.read'] }));
        await stopFeeds();
        await requestAll(client, response => expect(response.status).to.equal(200));
        await control(change, [sessionOf(client)]);
        await requestAll(client, response => {
          expect(response.status).to.equal(status);
          expect(response.body.code).to.equal(code);
        });
        await control(`update tenants set status = 'active' where status = 'suspended'`);
      });
    }

    it('a server is not ready without its change feed, and the feed reconnects by itself', async () => {
      await stopFeeds();
      expect(await readiness()).to.deep.equal([503, 503]);
      await allowConnections(true);
      await eventually(
        async () => (await readiness()).every(status => status === 200),
        announcedMs,
      );
      expect(await listeners()).to.have.length(2);
    });

    it('a reconnected change feed clears all caches before the server is ready again', async () => {
      const client = await warm(await world.login(world.acme));
      await stopFeeds();
      await control('update sessions set revoked_at = now() where id = ?', [sessionOf(client)]);
      await allowConnections(true);
      await eventually(
        async () => (await readiness()).every(status => status === 200),
        announcedMs,
      );
      await requestAll(client, response => expect(response.status).to.equal(401));
    });
  });

  it('a revocation takes effect, even if the change feed hangs without an error', async () => {
    const client = await warm(await world.login(world.acme));
    const pids = await listeners();
    expect(pids).to.have.length(2);

    try {
      for (const pid of pids) process.kill(pid, 'SIGSTOP');
      await requestAll(client, response => expect(response.status).to.equal(200));

      await control('update sessions set revoked_at = now() where id = ?', [sessionOf(client)]);
      await expectEverywhere(client, 401, 'invalid_token');
    } finally {
      for (const pid of pids) process.kill(pid, 'SIGCONT');
    }

    // Moves the feeds to new connections, whether or not they have closed the old ones already.
    await endConnections(pids);
    await eventually(async () => {
      const now = await listeners();
      return now.length === 2 && !now.some(pid => pids.includes(pid));
    }, announcedMs);

    await eventually(async () => (await readiness()).every(status => status === 200), announcedMs);
  });

  it('an unknown tenant is rejected without a query, until a tenant with its guid is created', async () => {
    const initech = await world.provision('initech');
    const logIn = async (): Promise<(ApiResponse & { url: string })[]> =>
      Promise.all(
        servers.map(async ({ url }) => ({
          url,
          ...(await world.anonymous
            .at(url)
            .post('/api/v1/auth/login', initech.admin, { 'X-Tenant': initech.guid })),
        })),
      );
    const codes = async () => (await logIn()).map(({ body }) => body.code);

    expect((await logIn()).map(({ status }) => status)).to.deep.equal([200, 200]);

    await withConnection(world.installation.controlUrl, async session => {
      const tables = [
        ['tenants', 'id'],
        ['tenant_databases', 'tenant_id'],
        ['signing_keys', 'tenant_id'],
        ['roles', 'tenant_id'],
        ['users', 'tenant_id'],
      ];

      for (const [table, key] of tables) {
        await session.query(
          `create temporary table saved_${table} as select * from ${table} where ${key} = ${initech.id}`,
        );
      }

      await session.query('delete from tenant_databases where tenant_id = $1', [initech.id]);
      await session.query('delete from tenants where id = $1', [initech.id]);
      await eventually(
        async () => (await codes()).every(code => code === 'tenant_required'),
        announcedMs,
      );

      await whileLocked(['tenants', 'signing_keys'], async () => {
        await eventuallyInRow(50, async () =>
          expect(await codes()).to.deep.equal(['tenant_required', 'tenant_required']),
        );
      });

      await session.query('begin');
      for (const [table] of tables) {
        await session.query(
          `insert into ${table} overriding system value select * from saved_${table}`,
        );
      }
      await session.query('commit');
    });
    await eventually(
      async () => (await logIn()).every(({ status }) => status === 200),
      announcedMs,
    );
  });

  describe('change feed and control cache', () => {
    it('a value that was read before a change and arrives after it is not cached', async () => {
      const own = createOwnFeed(world);
      const { feed } = own;
      const loads: ((value: object) => void)[] = [];
      const cache = new ControlCache({
        feed,
        topic: changeTopics.sessions,
        max: 10,
        ttlMs: 60_000,
        load: () => new Promise<object>(resolve => loads.push(resolve)),
      });

      const notified = new Promise(resolve =>
        feed.subscribe(changeTopics.roles, key => key === 'end' && resolve(key)),
      );

      await own.start();
      try {
        const early = cache.get('key');
        const shared = cache.get('key');
        await control(
          `select pg_notify('control_changes', 'sessions:key'), pg_notify('control_changes', 'roles:end')`,
        );
        await notified;

        const late = cache.get('key');
        expect(loads).to.have.length(2);
        expect(cache.getCached('key'), 'nothing is loaded yet').to.equal(undefined);

        loads[0]?.({ revoked: false });
        expect([await early, await shared]).to.deep.equal([{ revoked: false }, { revoked: false }]);
        expect(cache.getCached('key'), 'a value read before the change').to.equal(undefined);

        loads[1]?.({ revoked: true });
        expect(await late).to.deep.equal({ revoked: true });
        expect(cache.getCached('key')?.value).to.equal(await late);
        expect(await cache.get('key')).to.deep.equal({ revoked: true });
        expect(loads).to.have.length(2);
      } finally {
        await own.stop();
      }

      expect(feed.current).to.equal(false);
      expect(cache.getCached('key'), 'without a feed').to.equal(undefined);
    });

    it('a failed load is not cached, and the next look-up loads again', async () => {
      const own = createOwnFeed(world);
      const { feed } = own;
      let loads = 0;
      const cache = new ControlCache({
        feed,
        topic: changeTopics.sessions,
        max: 10,
        ttlMs: 60_000,
        load: async () => {
          loads++;
          if (loads === 1) throw new Error('the control database is unreachable');
          return { loads };
        },
      });

      await own.start();
      try {
        expect(await cache.get('key').catch((error: Error) => error.message)).to.equal(
          'the control database is unreachable',
        );
        expect(await cache.get('key')).to.deep.equal({ loads: 2 });
      } finally {
        await own.stop();
      }
    });

    it('a change feed that stops while it reconnects leaves no open connection', async () => {
      const proxy = await startProxy(world.installation.controlUrl);
      const own = createOwnFeed(world, proxy.url);
      const { feed } = own;

      try {
        await own.start();
        expect(feed.current).to.equal(true);

        proxy.hold();
        proxy.cut();
        await proxy.held();

        await own.stop();
        proxy.forward();
        await eventually(() => proxy.open() === 0, announcedMs);
        expect(feed.current).to.equal(false);
      } finally {
        await proxy.close();
      }
    });
  });

  /**
   * Sends requests to both servers until their caches contain the token, its user and its
   * tenant.
   */
  async function warm(client: Client, target = path): Promise<Client> {
    for (let i = 0; i < 4; i++) {
      await requestAll(client, response => expect(response.status).to.equal(200), target);
    }
    return client;
  }

  /** Sends one request to each server. */
  async function requestAll(
    client: Client,
    check: (response: ApiResponse) => void,
    target = path,
  ): Promise<void> {
    for (const { url } of servers) check(await client.at(url).get(target));
  }

  /** Expects that both servers come to return this response. */
  async function expectEverywhere(
    client: Client,
    status: number,
    body: string | object = {},
    target = path,
  ): Promise<void> {
    const expected = typeof body === 'string' ? { code: body } : body;
    await eventually(async () => {
      await requestAll(
        client,
        response => {
          expect(response.status).to.equal(status);
          for (const [name, value] of Object.entries(expected)) {
            expect(response.body[name]).to.deep.equal(value);
          }
        },
        target,
      );
      return true;
    }, announcedMs);
  }

  /**
   * Waits until a check succeeds so many times in a row: a feed that a busy machine delays for a
   * moment is waited out.
   */
  const eventuallyInRow = (times: number, check: () => Promise<unknown>) =>
    eventually(async () => {
      for (let i = 0; i < times; i++) await check();
      return true;
    }, announcedMs);

  /** Runs `work` while locks make every query of these tables wait. */
  async function whileLocked(tables: string[], work: () => Promise<void>): Promise<void> {
    await withConnection(world.installation.controlUrl, async session => {
      await session.query('begin');
      await session.query(`lock table ${tables.join(', ')} in access exclusive mode`);
      await work();
      await session.query('rollback');
    });
  }

  /**
   * Ends the feeds of both servers and prevents their reconnection; other connections stay
   * open.
   */
  async function stopFeeds(): Promise<void> {
    const lost = () => world.logs.filter(line => line.includes('"change_feed_lost"')).length;
    const before = lost();
    await allowConnections(false);
    const pids = await listeners();
    expect(pids).to.have.length(2);
    await endConnections(pids);
    await eventually(() => lost() === before + 2, announcedMs);
  }

  function endConnections(pids: number[]): Promise<unknown> {
    return operator(`select pg_terminate_backend(pid, 2000) from unnest('{${pids}}'::int[]) pid`);
  }

  function allowConnections(allowed: boolean): Promise<unknown> {
    return operator(`alter database "${controlName}" allow_connections ${allowed}`);
  }

  /** Returns the PostgreSQL processes of the feeds. */
  async function listeners(): Promise<number[]> {
    const rows = await operator<{ pid: number }>(
      `select pid from pg_stat_activity
        where application_name like 'backoffice-change-feed%' and datname = '${controlName}'`,
    );
    return rows.map(({ pid }) => pid);
  }

  function readiness(): Promise<number[]> {
    return Promise.all(
      servers.map(
        async ({ managementPort }) =>
          (await fetch(`http://127.0.0.1:${managementPort}/health/ready`)).status,
      ),
    );
  }
});

function operator<Row extends object>(statement: string): Promise<Row[]> {
  return withConnection(
    postgresUrl(),
    async client => (await client.query(statement)).rows as Row[],
  );
}

function part(token: string | undefined, index: 0 | 1): Record<string, unknown> {
  return JSON.parse(Buffer.from(token?.split('.')[index] ?? '', 'base64url').toString());
}

function sessionOf({ tokens }: Client): unknown {
  return part(tokens?.accessToken, 1).sid;
}

/** Starts a proxy to the database that can cut its connections, and can hold back new ones. */
async function startProxy(target: string) {
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
    forward: () => {
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
