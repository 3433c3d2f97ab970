import { randomUUID } from 'node:crypto';
import { expect } from 'chai';
import type { ApiResponse, Client } from '../support/client.ts';
import { eventually } from '../support/eventually.ts';
import { freePort } from '../support/free-port.ts';
import { useServiceProcesses } from '../support/service-processes.ts';
import { sql, useLogin, useWorld } from '../support/world.ts';

const statuses = '/api/v1/EntityStatus';
const steps = 10_000;

describe('drill: safe changes', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  const { start } = useServiceProcesses();

  it(`two clients that send If-Match never undo each other's changes, in ${steps} random steps on two processes`, async () => {
    const other = await world.startAnotherServer();
    const clients = [admin, admin.at(other.url)];
    const { body } = await admin.post(statuses, { Title: 'Counter', Weighting: 0 });
    const path = `${statuses}/${body.Id}`;

    const counts: Record<number, number> = {};
    let made = 0;
    let remaining = steps;

    /** Reads or adds 1, with the ETag that the client read last, however old it is by then. */
    const act = async (client: Client): Promise<void> => {
      let known = await client.get(path);

      while (remaining-- > 0) {
        if (Math.random() < 0.5) {
          known = await client.get(path);
          continue;
        }

        const etag = known.headers.get('etag') ?? '';
        const changed: ApiResponse = await client.put(
          path,
          { Title: 'Counter', Weighting: known.body.Weighting + 1 },
          { 'If-Match': etag },
        );

        counts[changed.status] = (counts[changed.status] ?? 0) + 1;
        if (changed.status !== 200) continue;
        made++;
        known = changed;
      }
    };

    await Promise.all(clients.map(act));
    console.log(JSON.stringify(counts));

    expect(Object.keys(counts)).to.have.members(['200', '412']);
    expect((await admin.get(path)).body.Weighting).to.equal(made);

    const updates = await sql<{ count: number }>(
      world.acme,
      `select count(*)::int from audit_log where action = 'update' and resource = 'EntityStatus' and record_key = '${body.Id}'`,
    );
    expect(updates).to.deep.equal([{ count: made }]);
  });

  it('50 equal requests with one key make one record and one audit entry, also if the process is killed meanwhile', async () => {
    const port = await freePort();
    const environment = { ...world.environment, PORT: String(port) };
    const client = admin.at(`http://127.0.0.1:${port}`);

    for (let round = 0; round < 5; round++) {
      const running = await start(environment);
      const title = `Once ${round}`;
      const headers = { 'Idempotency-Key': randomUUID() };
      const send = (): Promise<ApiResponse> => client.post(statuses, { Title: title }, headers);

      /** Repeats the request like a client that got no response, or is told to wait. */
      const persist = async (): Promise<ApiResponse> => {
        const received = await eventually(async () => {
          const response = await send().catch(() => undefined);
          return response && response.status !== 409 && response.status !== 503
            ? response
            : undefined;
        }, 60_000);
        return received as ApiResponse;
      };

      const all = Promise.all(Array.from({ length: 50 }, persist));
      await eventually(async () => (await rowsOf(title)) > 0 || Math.random() < 0.2, 30_000);
      running.process.kill('SIGKILL');
      await running.ended;

      const restarted = await start(environment);
      const responses = await all;

      const outcomes = new Set(responses.map(({ status, body }) => JSON.stringify([status, body])));
      expect([...outcomes]).to.have.length(1);
      expect(responses[0]?.status).to.equal(201);
      expect(await rowsOf(title)).to.equal(1);

      const entries = await sql<{ count: number }>(
        world.acme,
        `select count(*)::int from audit_log where action = 'create' and after ->> 'title' = '${title}'`,
      );
      expect(entries).to.deep.equal([{ count: 1 }]);

      restarted.process.kill('SIGTERM');
      await restarted.ended;
    }
  });

  async function rowsOf(title: string): Promise<number> {
    const [row] = await sql<{ count: number }>(
      world.acme,
      `select count(*)::int from entity_statuses where title = '${title}'`,
    );
    return row?.count ?? 0;
  }
});
