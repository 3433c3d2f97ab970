import { type ClientRequest, request } from 'node:http';
import { expect } from 'chai';
import { startReceiver } from '../sales/webhooks/receiver.ts';
import type { Client } from '../support/client.ts';
import { type ServiceProcess, useServiceProcesses } from '../support/service-processes.ts';
import { use } from '../support/use.ts';
import { createWorld, sql } from '../support/world.ts';

/** The neighbour's requests that are measured. */
const measured = 150;
/** Attackers at a time. */
const attackers = 8;
/**
 * The longest p95 of a neighbour during an attack, in ms: of a machine that does much else, and
 * as a multiple of that without an attack.
 */
const boundOf = (quietMs: number): number => Math.max(1_000, 20 * quietMs);

/**
 * What one tenant can do without a limit of rates, each against a process of its own, while a
 * neighbour reads. The limits are those of the tests: none counts. The drills of logins, slow
 * lists and uploads have more of each kind.
 */
describe('drill: a tenant attacks, and its neighbour is served', () => {
  const receiver = use(startReceiver);
  const world = use(() => createWorld({ WEBHOOK_TRUSTED_RECEIVERS: receiver.trusted }));
  const processes = useServiceProcesses();
  let service: ServiceProcess;
  let attacker: Client;
  let neighbour: Client;

  before(async () => {
    await sql(
      world.acme,
      `insert into activities (activity_code, comment, recorded_by, recorded_from)
       select n, repeat('🦄', 4000), 1, '127.0.0.1' from generate_series(1, 2000) n`,
    );
    service = await processes.start(world.environment);
    attacker = (await world.login(world.acme)).at(service.url);
    neighbour = (await world.login(world.globex)).at(service.url);
  });

  async function p95(): Promise<number> {
    const times: number[] = [];
    for (let count = 0; count < measured; count++) {
      const startedAt = performance.now();
      const { status } = await neighbour.get('/api/v1/OrderStatuses?sort=Name');
      times.push(performance.now() - startedAt);
      expect(status).to.equal(200);
    }
    return times.sort((one, other) => one - other)[Math.floor(measured * 0.95)] ?? 0;
  }

  /** Sends requests one after the other, by several clients, until it is stopped. */
  function repeat(send: (index: number) => Promise<{ status: number }>): Attack {
    let isStopped = false;
    const statuses = new Map<number, number>();
    const loops = Array.from({ length: attackers }, async (_, index) => {
      while (!isStopped) {
        const { status } = await send(index);
        statuses.set(status, (statuses.get(status) ?? 0) + 1);
      }
    });

    return {
      statuses,
      stop: async () => {
        isStopped = true;
        await Promise.all(loops);
      },
    };
  }

  interface Attack {
    readonly statuses: ReadonlyMap<number, number>;
    stop(): Promise<void>;
  }

  /** Begins responses, and reads nothing of them. */
  function leaveUnread(path: string, count: number): Attack {
    const statuses = new Map<number, number>();
    const requests = Array.from({ length: count }, (): ClientRequest => {
      const headers = { Authorization: `Bearer ${attacker.tokens?.accessToken}` };
      const sent = request(`${service.url}${path}`, { headers, agent: false });
      sent.on('error', () => {});
      sent.on('response', response => {
        statuses.set(response.statusCode ?? 0, (statuses.get(response.statusCode ?? 0) ?? 0) + 1);
        response.on('error', () => {}).pause();
      });
      sent.end();
      return sent;
    });

    return {
      statuses,
      stop: async () => {
        for (const each of requests) each.destroy();
      },
    };
  }

  const file = `Title,Weighting\n${Array.from({ length: 10_000 }, (_, n) => `Status ${n},${n}`).join('\n')}\n`;
  const attacks: Readonly<Record<string, () => Attack | Promise<Attack>>> = {
    'streams of large records that nobody reads (A1)': async () => {
      const { headers } = await attacker.get('/api/v1/Changes?limit=1');
      return leaveUnread(
        `/api/v1/Changes/stream?include=record&after=${headers.get('next-cursor')}`,
        5,
      );
    },
    'exports of large records (A1)': async () => {
      const headers = { Accept: 'text/csv' };
      return repeat(async () => attacker.get('/api/v1/Activity?limit=200', headers));
    },
    'replays of all changes to one host (A7)': async () => {
      const made: number[] = [];
      for (let count = 0; count < attackers; count++) {
        const webhook = { Url: receiver.url(`/flood/${count}`), Resources: ['Activity'] };
        made.push((await attacker.post('/api/v1/Webhooks', webhook)).body.Id);
      }
      const Since = '2020-01-01T00:00:00Z';
      return repeat(index => attacker.post(`/api/v1/Webhooks/${made[index]}/replay`, { Since }));
    },
    'reads of the feed behind large records (A8)': () =>
      repeat(index =>
        attacker.get(
          `/api/v1/Changes?after=now&limit=${index % 2 === 0 ? 1 : 1_000}&include=record`,
        ),
      ),
    'searches of large texts, sorted by two fields': () =>
      repeat(() => attacker.get('/api/v1/Activity?q=zz&sort=ActivityCode,-Id')),
    'imports of 10,000 rows': () =>
      repeat(() =>
        attacker.post('/api/v1/Imports?resource=EntityStatus&dryRun=true', file, {
          'Content-Type': 'text/csv',
        }),
      ),
    'logins with a wrong password': () =>
      repeat(index =>
        world.anonymous
          .at(service.url)
          .post(
            '/api/v1/auth/login',
            { email: `nobody-${index}@acme.test`, password: 'three quiet rivers' },
            { 'X-Tenant': world.acme.guid },
          ),
      ),
  };

  for (const [title, begin] of Object.entries(attacks)) {
    it(`${title} bound the neighbour's p95`, async () => {
      const quietMs = await p95();
      const attack = await begin();

      const duringMs = await p95();

      await attack.stop();
      const sent = [...attack.statuses].map(([status, count]) => `${count} × ${status}`).join(', ');
      console.log(
        `      p95 ${quietMs.toFixed(1)} → ${duringMs.toFixed(1)} ms; attack: ${sent || 'open'}`,
      );
      expect(duringMs).to.be.below(boundOf(quietMs));
      const refused = [...attack.statuses.keys()].filter(
        status => status === 400 || status === 500,
      );
      expect(refused).to.deep.equal([]);
      expect(service.process.exitCode).to.equal(null);
    });
  }
});
