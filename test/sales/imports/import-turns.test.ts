import { randomUUID } from 'node:crypto';
import { request } from 'node:http';
import { expect } from 'chai';
import type pg from 'pg';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { holdImports } from '../../../src/sales/imports/import-lock.ts';
import type { ApiResponse, Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { readLockWaiters } from '../../support/lock-waiters.ts';
import { useServiceProcesses } from '../../support/service-processes.ts';
import { succeed } from '../../support/succeed.ts';
import { sql, type TestTenant, useLogin, useWorld } from '../../support/world.ts';

const csv = { 'Content-Type': 'text/csv' };
const path = '/api/v1/Imports?resource=Country';
const fileOf = (code: string) => `CountryCode,CountryName\n${code},Name of ${code}\n`;

describe('imports beside each other, moves and the ends of processes', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  const stranger = useLogin(world, 'globex');
  const processes = useServiceProcesses();

  const post = (client: Client, code: string, headers = {}) =>
    client.post(path, fileOf(code), { ...csv, ...headers });
  const countriesOf = async (tenant: TestTenant, code: string) =>
    (await sql(tenant, 'select from countries where country_code = $1', [code])).length;

  /** Lets imports of countries of a tenant begin, and not end, during the work. */
  async function whileWaiting<T>(
    tenant: TestTenant,
    work: (locked: pg.Client) => Promise<T>,
  ): Promise<T> {
    return withConnection(tenant.adminUrl, async client => {
      await client.query('begin');
      await client.query('lock table countries in exclusive mode');
      const result = await work(client);
      await client.query('rollback');
      return result;
    });
  }

  const isWaiting = (locked: pg.Client) =>
    eventually(async () => (await readLockWaiters(locked)).length > 0);

  function expectBusy({ status, body, headers }: ApiResponse): void {
    expect(status, JSON.stringify(body)).to.equal(503);
    expect(body.code).to.equal('unavailable');
    expect(Number(headers.get('retry-after'))).to.be.above(0);
  }

  it('of two imports of a tenant, in one process or in two, the second is 503 with Retry-After, and other tenants import', async () => {
    const { service, url } = await world.startAnotherServer();
    try {
      const running = await whileWaiting(world.acme, async locked => {
        const sent = post(admin, 'AA');
        await isWaiting(locked);

        expectBusy(await post(admin, 'AB'));
        expectBusy(await post(admin.at(url), 'AC'));
        expect((await post(stranger, 'AD')).body.Applied).to.equal(true);
        return { sent };
      });

      expect((await running.sent).body).to.include({ Applied: true, Created: 1 });
      expect((await post(admin, 'AB')).status).to.equal(200);
    } finally {
      await service.stop();
    }
  });

  it('a process runs four imports at most, and the fifth tenant gets 503 with Retry-After', async () => {
    const others = [
      await world.provision('initech'),
      await world.provision('umbrella'),
      await world.provision('hooli'),
    ];
    const tenants = [world.acme, world.globex, ...others];
    const clients = await Promise.all(tenants.map(tenant => world.login(tenant)));

    const sendAll = async (
      index: number,
      sent: Promise<ApiResponse>[],
    ): Promise<Promise<ApiResponse>[]> => {
      const [tenant, client] = [tenants[index] as TestTenant, clients[index] as Client];
      if (index === 4) {
        expectBusy(await post(client, 'BA'));
        return sent;
      }

      return whileWaiting(tenant, async locked => {
        const sending = post(client, 'BA');
        await isWaiting(locked);
        return sendAll(index + 1, [...sent, sending]);
      });
    };
    const responses = await Promise.all(await sendAll(0, []));

    expect(responses.map(({ status }) => status)).to.deep.equal([200, 200, 200, 200]);
  });

  it('an import whose client goes away, and that is sent again with its key, is made once', async () => {
    const key = { 'Idempotency-Key': randomUUID() };
    await whileWaiting(world.acme, async locked => {
      const sent = request(`${world.url}${path}`, {
        method: 'POST',
        headers: { ...csv, ...key, Authorization: `Bearer ${admin.tokens?.accessToken}` },
      });
      sent.on('error', () => {}).end(fileOf('DA'));
      await isWaiting(locked);
      sent.destroy();
    });

    const again = await eventually(async () => {
      const response = await post(admin, 'DA', key);
      return response.status === 200 && response;
    });

    expect(again.body).to.include({ Applied: true, Created: 1 });
    expect(await countriesOf(world.acme, 'DA')).to.equal(1);
  });

  it('an import that reaches its deadline of 20 s is 503, changes nothing, and is made when it is sent again', async () => {
    const running = await processes.start(world.environment);
    const client = admin.at(running.url);
    const key = { ...csv, 'Idempotency-Key': randomUUID() };
    const file = `Name,EntityType\n${'Customer,customer\n'.repeat(10_000)}`;
    const send = () => client.post('/api/v1/Imports?resource=Entity', file, key);
    const count = () => sql(world.acme, 'select from entities');
    await sql(
      world.acme,
      `create function be_slow() returns trigger language plpgsql as 'begin perform pg_sleep(0.4); return null; end';
       create trigger be_slow after insert on entities for each statement execute function be_slow()`,
    );
    const startedAt = performance.now();

    const late = await send();

    expect(performance.now() - startedAt).to.be.within(19_000, 30_000);
    expect(late.status).to.equal(503);
    expect(late.body.code).to.equal('unavailable');
    expect(await count()).to.have.length(0);
    await sql(world.acme, 'drop function be_slow() cascade');
    const again = await eventually(async () => {
      const response = await send();
      return response.status === 200 && response;
    });
    expect(again.body).to.include({ Applied: true, Created: 10_000 });
    expect(await count()).to.have.length(10_000);
  });

  it('an import whose process is killed, or loses its connection, changes nothing, and is made once with its key', async () => {
    for (const code of ['FA', 'FB']) {
      const running = await processes.start(world.environment);
      const key = { 'Idempotency-Key': randomUUID() };

      const lost = await whileWaiting(world.acme, async locked => {
        const sent = post(admin.at(running.url), code, key).catch(() => undefined);
        await isWaiting(locked);
        if (code === 'FA') {
          running.process.kill('SIGKILL');
        } else {
          await locked.query('select pg_terminate_backend(pid) from unnest($1::int[]) pid', [
            await readLockWaiters(locked),
          ]);
        }
        return await sent;
      });

      expect(lost?.status).to.equal(code === 'FA' ? undefined : 503);
      expect(await countriesOf(world.acme, code)).to.equal(0);
      const again = await eventually(async () => {
        const response = await post(admin, code, key);
        return response.status === 200 && response;
      });
      expect(again.body).to.include({ Applied: true, Created: 1 });
      expect((await post(admin, code, key)).headers.get('idempotency-replayed')).to.equal('true');
    }
  });

  const command = (...args: string[]) => succeed(world.environment, 'tenant', [...args, '--yes']);
  const losses: [what: string, status: number, lose: (role: string) => Promise<unknown>][] = [
    ['is disabled', 401, name => command('user', 'disable', 'acme', `${name}@acme.test`)],
    [
      'has a narrower role',
      403,
      async name => {
        const { body } = await admin.get('/api/v1/Roles');
        const role = body.find(({ Name }: { Name: string }) => Name === name);
        const changed = await admin.put(`/api/v1/Roles/${role.Id}`, {
          Name: role.Name,
          Permissions: ['settings.read'],
        });
        expect(changed.status, JSON.stringify(changed.body)).to.equal(200);
      },
    ],
    ['is of a tenant that is suspended', 403, () => command('suspend', 'acme')],
  ];
  for (const [what, status, lose] of losses) {
    it(`an import in another process than the change is ${status} and changes nothing when its sender ${what}`, async () => {
      const running = await processes.start(world.environment);
      const sender = await world.loginAs(world.acme, { permissions: ['settings.write'] });
      const { role: name } = (await sender.get('/api/v1/auth/me')).body;

      const { sent } = await whileWaiting(world.acme, async locked => {
        const sending = post(sender.at(running.url), 'LA');
        await isWaiting(locked);
        await lose(name);
        const isRefused = async () => (await post(sender.at(running.url), '')).status === status;
        await eventually(isRefused); // the process knows
        return { sent: sending };
      });

      expect((await sent).status).to.equal(status);
      expect(await countriesOf(world.acme, 'LA')).to.equal(0);
      if (what.includes('suspended')) {
        await succeed(world.environment, 'tenant', ['resume', 'acme']);
      }
    });
  }

  it('after SIGTERM an import that runs ends, and one that has less than its deadline left is 503', async () => {
    const running = await processes.start({ ...world.environment, SHUTDOWN_DELAY: '15s' });
    const client = admin.at(running.url);

    const sent = await whileWaiting(world.acme, async locked => {
      const sending = post(client, 'GA');
      await isWaiting(locked);
      running.process.kill('SIGTERM');
      await eventually(() => running.output.stdout.includes('"event":"stopping"'));
      return { sending };
    });
    expect((await sent.sending).body).to.include({ Applied: true, Created: 1 });

    const refused = await eventually(async () => {
      const response = await post(stranger.at(running.url), 'GA');
      return response.status === 503 && response;
    });
    expectBusy(refused);
    expect((await running.ended).code).to.equal(0);
  });

  it('a command that moves or changes a database waits for the running import, and imports that begin meanwhile are 503', async () => {
    const { service, url } = await world.startAnotherServer();
    await withConnection(world.acme.adminUrl, async operator => {
      const { sent, held } = await whileWaiting(world.acme, async locked => {
        const sending = post(admin, 'HA');
        await isWaiting(locked);
        const holding = holdImports(operator);
        expectBusy(await post(admin.at(url), 'HB'));
        return { sent: sending, held: holding };
      });

      expect((await sent).body.Applied).to.equal(true);
      await held;
      expectBusy(await post(admin.at(url), 'HB'));
      expect((await post(stranger, 'HB')).status).to.equal(200);
    }).finally(service.stop);

    const after = await eventually(async () => {
      const response = await post(admin, 'HB');
      return response.status === 200 && response;
    });
    expect(after.body.Applied).to.equal(true);
  });

  it('a stream of imports does not keep a command of an operator from its turn', async () => {
    let isOver = false;
    const stream = (async () => {
      for (let number = 0; !isOver; number++) await post(admin, `S${number}`);
    })();

    await withConnection(world.acme.adminUrl, async operator => {
      await holdImports(operator);
      expectBusy(await post(admin, 'ZZ'));
    });

    isOver = true;
    await stream;
  });
});

describe('imports of a process with few connections', () => {
  const world = useWorld({ CONNECTION_BUDGET: '14' });

  it('at most half of the connections of a process to a server serve imports, and requests go on beside them', async () => {
    const tenants = [world.acme, world.globex, await world.provision('initech')];
    const clients = await Promise.all(tenants.map(tenant => world.login(tenant)));
    const budgets = () => [...world.service.databases.budgets.all.values()];

    const sendAll = async (accepted: Promise<ApiResponse>[]): Promise<Promise<ApiResponse>[]> => {
      const [tenant, client] = [tenants[accepted.length], clients[accepted.length]];
      if (!tenant || !client) return accepted;

      return withConnection(tenant.adminUrl, async locked => {
        await locked.query('begin; lock table countries in exclusive mode');
        const sending = client.post(path, fileOf('AA'), csv);
        const isRefused = sending.then(({ status }) => status === 503);
        const isBlocked = eventually(async () => (await readLockWaiters(locked)).length > 0).then(
          () => false,
        );
        if (!(await Promise.race([isRefused, isBlocked]))) return sendAll([...accepted, sending]);

        expect((await client.get('/api/v1/EntityStatus')).status).to.equal(200);
        const half = Math.floor(Math.max(...budgets().map(({ max }) => max)) / 2);
        expect(accepted.length).to.be.at.most(Math.max(1, half));
        return accepted;
      });
    };
    const accepted = await Promise.all(await sendAll([]));

    expect(accepted).to.have.length.within(1, 2);
    expect(accepted.map(({ status }) => status)).to.deep.equal(accepted.map(() => 200));
  });
});
