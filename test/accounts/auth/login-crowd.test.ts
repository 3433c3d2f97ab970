import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { expect } from 'chai';
import { createPasswords } from '../../../src/accounts/auth/passwords.ts';
import { type ApiResponse, Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { use } from '../../support/use.ts';
import { createWorld, type TestTenant, type World } from '../../support/world.ts';

const path = '/api/v1/auth/login';

describe('crowd of logins', () => {
  // Hashes that take far longer than a request takes to arrive, on a busy machine too.
  const passwords = createPasswords(undefined, { memoryCost: 32_768, timeCost: 3 });
  const world = use(() => createWorld({}, passwords));
  let behindProxy: Client;

  before(async () => {
    behindProxy = new Client(
      (await world.startAnotherServer({ TRUSTED_PROXIES: '127.0.0.1' })).url,
    );
  });

  const login = (
    tenant: TestTenant,
    address: string,
    credentials: object = tenant.admin,
  ): Promise<ApiResponse> =>
    behindProxy.post(path, credentials, { 'X-Tenant': tenant.guid, 'X-Forwarded-For': address });
  const wrong = () => ({ email: `${randomUUID()}@acme.test`, password: 'wrong password' });

  it('a login succeeds while 256 networks of one /56 keep the queue of another tenant full', async () => {
    let ended = 0;
    const crowd = Array.from({ length: 256 }, (_, i) =>
      login(world.acme, `2001:db8:0:${i.toString(16)}::1`, wrong()).finally(() => ended++),
    );

    const overloaded = Promise.any(
      crowd.map(async response => {
        if ((await response).status !== 503) throw new Error('not refused');
      }),
    );

    await overloaded;
    const before = 40;
    expect(world.passwords.usage.waiting).to.be.above(before);

    const hashedBefore = world.passwords.usage.hashed;
    const [other, sameTenant] = await Promise.all([
      login(world.globex, '198.51.100.7'),
      login(world.acme, '198.51.100.8'),
    ]);

    expect(other.status).to.equal(200);
    expect(sameTenant.status).to.equal(200);
    // Both had to wait for a few hashes only, not for the whole queue.
    expect(world.passwords.usage.hashed - hashedBefore).to.be.below(before);

    const responses = await Promise.all(crowd);
    expect(new Set(responses.map(({ status }) => status))).to.deep.equal(new Set([401, 503]));
    expect(ended).to.equal(256);
  });

  it('no password is hashed for a client that left while its login waited', async () => {
    // Hashes that take longer than the service needs to notice that a client has left, on a
    // busy machine too.
    const slow = await createWorld(
      {},
      createPasswords({ busy: 1, idle: 1 }, { memoryCost: 65_536, timeCost: 3 }),
    );
    const { usage } = slow.passwords;

    const sockets = await Promise.all(Array.from({ length: 40 }, () => openLogin(slow)));
    await eventually(() => usage.waiting >= 20);

    const { hashed, waiting } = usage;
    for (const socket of sockets) socket.destroy();
    await eventually(() => usage.waiting === 0);

    expect(usage.hashed - hashed).to.be.below(waiting / 2);

    await slow.close();
  });

  /** Sends a login with a wrong password, without waiting for the response. */
  async function openLogin({ url, acme }: World): Promise<Socket> {
    const body = JSON.stringify(wrong());
    const socket = connect(Number(new URL(url).port), '127.0.0.1');
    socket.on('error', () => {});
    await once(socket, 'connect');
    const head = [
      `POST ${path} HTTP/1.1`,
      'Host: x',
      `X-Tenant: ${acme.guid}`,
      'Content-Type: application/json',
    ];
    socket.write(`${head.join('\r\n')}\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
    return socket;
  }
});
