import { EventEmitter, once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { mock } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { expect } from 'chai';
import type { Context } from 'koa';
import { createDelay } from '../../../src/lib/http/steps/rate-limit/rejection-delay.ts';
import { type ApiResponse, Client } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { useWorld } from '../../support/world.ts';
import { type HeldTimers, holdTimers } from './held-timers.ts';

const login = '/api/v1/auth/login';
const rejectionDelayMs = 2_000;
const patienceMs = 30_000; // for 600 requests on a busy machine

describe('delayed rejections of a server', function () {
  this.slow(4_000);
  const world = useWorld();
  let limited: Client;
  let managementUrl: string;
  let held: HeldTimers;
  const email = 'nobody@acme.test';

  before(async () => {
    const { service, url } = await world.startAnotherServer({ RATE_LIMIT_LOGIN: '1/15m' });
    limited = new Client(url);
    managementUrl = `http://127.0.0.1:${service.managementPort}`;
    await limited.post(login, { email }); // the one login that is allowed
  });
  beforeEach(() => {
    held = holdTimers(rejectionDelayMs);
  });
  afterEach(() => held.restore());

  it('100 waiting rejections hold back no other request, and end when their clients disconnect', async () => {
    const user = (await world.login(world.acme)).at(limited.url);
    const sockets = await Promise.all(
      Array.from({ length: 100 }, () => openLogin(limited.url, email)),
    );
    let received = 0;
    for (const socket of sockets) socket.on('data', () => received++);
    await eventually(() => held.size === 100, patienceMs);

    for (let i = 0; i < 10; i++) {
      const responses = await Promise.all(
        Array.from({ length: 10 }, () => user.get('/api/v1/EntityStatus')),
      );
      expect(responses.map(({ status }) => status)).to.deep.equal(Array(10).fill(200));
    }
    expect((await fetch(`${managementUrl}/health/live`)).status).to.equal(200);
    expect({ waiting: held.size, received }).to.deep.equal({ waiting: 100, received: 0 });

    const disconnected = () => world.logs.filter(line => line.includes('"status":499')).length;
    const logged = disconnected();
    for (const socket of sockets) socket.destroy();
    await eventually(() => held.size === 0 && disconnected() === logged + 100, patienceMs);
  });

  it('at most 500 rejections wait, and all others are sent at once', async () => {
    const responses: ApiResponse[] = [];
    const requests = Array.from({ length: 600 }, async () => {
      responses.push(await limited.post(login, { email }));
    });

    await eventually(() => responses.length + held.size === 600, patienceMs);
    expect({ sent: responses.length, waiting: held.size }).to.deep.equal({
      sent: 100,
      waiting: 500,
    });

    held.release();
    await Promise.all(requests);
    expect(responses.map(({ status }) => status)).to.deep.equal(Array(600).fill(429));
  });

  it('during the delay of a stop, rejections still wait', async () => {
    const { service, url } = await world.startAnotherServer({ RATE_LIMIT_LOGIN: '1/15m' });
    const client = new Client(url);
    await client.post(login, { email });
    const before = client.post(login, { email });
    await eventually(() => held.size === 1, patienceMs);

    // The next request begins within the delay, on a busy machine as well.
    const stopped = service.stop(8_000);
    const during = client.post(login, { email });
    await eventually(() => held.size === 2, 7_000);

    for (const { status } of await Promise.all([before, during])) expect(status).to.equal(429);
    expect(held.size).to.equal(0);
    expect(await stopped).to.equal(true);
  });

  it('waiting rejections are sent at once when the server stops without a delay', async () => {
    const { service, url } = await world.startAnotherServer({ RATE_LIMIT_LOGIN: '1/15m' });
    const client = new Client(url);
    await client.post(login, { email });
    const waiting = [1, 2, 3].map(() => client.post(login, { email }));
    await eventually(() => held.size === 3, patienceMs);

    const stopped = service.stop();
    for (const { status } of await Promise.all(waiting)) expect(status).to.equal(429);
    expect(held.size).to.equal(0);
    expect(await stopped).to.equal(true);
  });
});

describe('rejection delay', () => {
  const request = () => ({ res: Object.assign(new EventEmitter(), { destroyed: false }) });
  const wait = (delay: ReturnType<typeof createDelay>, ctx = request()) => {
    const state = { ended: false };
    void delay(ctx as unknown as Context).then(() => {
      state.ended = true;
    });
    return state;
  };
  beforeEach(() => mock.timers.enable({ apis: ['setTimeout'] }));
  afterEach(() => mock.timers.reset());

  it('a delay of 2,000 ms ends after 2,000 ms and not earlier', async () => {
    const state = wait(createDelay(rejectionDelayMs, new AbortController().signal));
    mock.timers.tick(1_999);
    await setImmediate();
    expect(state.ended).to.equal(false);
    mock.timers.tick(1);
    await setImmediate();
    expect(state.ended).to.equal(true);
  });

  it('a delay ends at once when its client disconnects, and leaves no listener', async () => {
    const delay = createDelay(rejectionDelayMs, new AbortController().signal);
    const [connected, disconnected] = [request(), request()];
    disconnected.res.destroyed = true;
    const states = [wait(delay, connected), wait(delay, disconnected)];

    await setImmediate();
    expect(states.map(({ ended }) => ended)).to.deep.equal([false, true]);

    connected.res.emit('close');
    await setImmediate();
    expect(states.map(({ ended }) => ended)).to.deep.equal([true, true]);
    expect([connected, disconnected].map(({ res }) => res.listenerCount('close'))).to.deep.equal([
      0, 0,
    ]);
  });

  it('delays end at once when the server stops, and none begins afterwards', async () => {
    const draining = new AbortController();
    const delay = createDelay(rejectionDelayMs, draining.signal);
    const before = wait(delay);
    await setImmediate();
    expect(before.ended).to.equal(false);

    draining.abort();
    const after = wait(delay);
    await setImmediate();
    expect(before.ended).to.equal(true);
    expect(after.ended).to.equal(true);
  });

  it('the 501st delay ends at once, and a delay that ends makes room for another', async () => {
    const delay = createDelay(rejectionDelayMs, new AbortController().signal);
    const [first, ...others] = Array.from({ length: 500 }, request);
    const states = [first, ...others].map(ctx => wait(delay, ctx));
    const refused = wait(delay);

    await setImmediate();
    expect(states.filter(({ ended }) => ended)).to.have.length(0);
    expect(refused.ended).to.equal(true);

    first?.res.emit('close');
    const admitted = wait(delay);
    await setImmediate();
    expect(admitted.ended).to.equal(false);
  });
});

/** Sends a login and does not wait for its response. */
async function openLogin(url: string, email: string): Promise<Socket> {
  const body = JSON.stringify({ email });
  const socket = connect(Number(new URL(url).port), '127.0.0.1');
  socket.on('error', () => {});
  await once(socket, 'connect');
  const head = `POST ${login} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: ${body.length}`;
  socket.write(`${head}\r\n\r\n${body}`);
  return socket;
}
