import { expect } from 'chai';
import type { Client } from '../support/client.ts';
import { type RawResult, rawRequest, sendRaw } from '../support/raw-http.ts';
import { type ServiceProcess, useServiceProcesses } from '../support/service-processes.ts';
import { useWorld } from '../support/world.ts';

const statuses = '/api/v1/EntityStatus';
const json = 'Content-Type: application/json';
const keepAliveSeconds = 10;

/**
 * Clients that hold a connection, and the time in which it is free: *Idle clients* in
 * docs/operate/capacity.md.
 */
const idle: Record<string, { sent: (tenant: string) => string; within: number; answer: number }> = {
  'sends nothing': { sent: () => '', within: 7, answer: 408 },
  'sends half a head': {
    sent: () => 'GET / HTTP/1.1\r\nHost: backoffice.te',
    within: 7,
    answer: 408,
  },
  'sends half a body': {
    sent: tenant => {
      const headers = [json, `X-Tenant: ${tenant}`, 'Content-Length: 100'];
      return rawRequest('POST /api/v1/auth/login', headers, '{"email"');
    },
    within: 14,
    answer: 408,
  },
  'sends nothing after a response': {
    sent: () => rawRequest('GET /docs', []),
    within: keepAliveSeconds + 3,
    answer: 200,
  },
};

describe('drill: clients that hold connections and do nothing', function () {
  this.timeout(300_000);

  const world = useWorld();
  const processes = useServiceProcesses();
  let service: ServiceProcess;
  let admin: Client;

  before(async () => {
    service = await processes.start({
      ...world.environment,
      KEEP_ALIVE_TIMEOUT: `${keepAliveSeconds}s`,
    });
    admin = (await world.login(world.acme)).at(service.url);
  });

  function hold(sent: (tenant: string) => string): Promise<RawResult> {
    const bytes = sent(world.acme.guid);
    return sendRaw(service.url, bytes === '' ? [] : bytes, { withinMs: 60_000 });
  }

  for (const [what, { sent, within, answer }] of Object.entries(idle)) {
    it(`the connection of a client that ${what} is closed within ${within} s`, async () => {
      const startedAt = performance.now();

      const { closed, statuses: received } = await hold(sent);

      const seconds = (performance.now() - startedAt) / 1_000;
      console.log(`      ${seconds.toFixed(1)} s`);
      expect(closed).to.equal(true);
      expect(received).to.deep.equal([answer]);
      expect(seconds).to.be.below(within);
    });
  }

  it('1,000 clients of each kind keep nobody from a response, and all are gone a minute later', async () => {
    const held = Object.values(idle).flatMap(({ sent }) =>
      Array.from({ length: 1_000 }, () => hold(sent)),
    );

    const { status } = await admin.get(statuses);

    expect(status).to.equal(200);
    expect((await Promise.all(held)).filter(({ closed }) => !closed)).to.deep.equal([]);
  });
});
