import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { eventually } from '../../support/eventually.ts';
import { useLogin, useWorld } from '../../support/world.ts';

const statuses = '/api/v1/EntityStatus';
/**
 * A request on a frozen connection fails after 9 s on an idle machine, and never without the
 * limit of silence.
 */
const maxFailureMs = 60_000;

describe('dead connections', () => {
  const world = useWorld({ TENANT_CONNECTIONS: '2', CONTROL_CONNECTIONS: '2' });
  const admin = useLogin(world, 'acme');
  const logIn = () =>
    world.anonymous.post('/api/v1/auth/login', world.acme.admin, { 'X-Tenant': world.acme.guid });

  describe('connections cut in a transaction', () => {
    it('a cut connection to a tenant database leaves its pool, and later requests succeed', async () => {
      for (let i = 0; i < 4; i++) {
        const response = await cutDuringLockWait(world.acme.adminUrl, 'entity_statuses', () =>
          admin.post(statuses, { Title: `cut ${i}` }),
        );
        expect(response.status).to.equal(503);
        expect(response.body.code).to.equal('unavailable');
      }
      expect((await admin.get(statuses)).status).to.equal(200);
      expect((await admin.post(statuses, { Title: 'after the cuts' })).status).to.equal(201);
    });

    it('a cut connection to the control database leaves its pool, and later logins succeed', async () => {
      for (let i = 0; i < 4; i++) {
        const response = await cutDuringLockWait(world.installation.controlUrl, 'sessions', logIn);
        expect(response.status).to.equal(503);
        expect(response.body.code).to.equal('unavailable');
      }
      expect((await logIn()).status).to.equal(200);
    });
  });

  describe('frozen server processes', () => {
    it('requests on a frozen connection fail within 10 s, later ones succeed, and the service stops', async () => {
      const other = await world.startAnotherServer();
      const client = admin.at(other.url);
      expect((await client.get(statuses)).status).to.equal(200);

      const noCache = { 'Cache-Control': 'no-cache' };
      const frozen = await backends(world.acme.adminUrl);
      for (const pid of frozen) process.kill(pid, 'SIGSTOP');

      try {
        const startedAt = performance.now();
        const responses = await Promise.all(
          Array.from({ length: 2 * frozen.length }, () =>
            Promise.race([client.get(statuses, noCache), sleep(maxFailureMs)]),
          ),
        );

        expect(performance.now() - startedAt).to.be.lessThan(maxFailureMs);
        for (const response of responses) expect(response?.status).to.be.oneOf([200, 503]);

        expect((await client.post(statuses, { Title: 'on a new connection' })).status).to.equal(
          201,
        );
        await other.service.stop();
      } finally {
        for (const pid of frozen) process.kill(pid, 'SIGCONT');
      }
    });
  });

  /** Lets a request wait for a lock, and terminates its connection during the wait. */
  async function cutDuringLockWait<T>(
    url: string,
    table: string,
    request: () => Promise<T>,
  ): Promise<T> {
    return withConnection(url, async client => {
      await client.query(`begin; lock table ${table} in access exclusive mode`);
      const response = request();
      await eventually(() =>
        withConnection(url, async other => {
          const { rowCount } = await other.query(
            `select pg_terminate_backend(pid) from pg_stat_activity
              where datname = current_database() and application_name like 'backoffice-%' and wait_event_type = 'Lock'`,
          );
          return (rowCount ?? 0) > 0;
        }),
      );
      const result = await response;
      await client.query('rollback');
      return result;
    });
  }
});

/** Returns the pids of the server processes behind the service's connections to a database. */
async function backends(adminUrl: string): Promise<number[]> {
  return withConnection(adminUrl, async client => {
    const { rows } = await client.query<{ pid: number }>(
      `select pid from pg_stat_activity where datname = current_database() and application_name like 'backoffice-api %'`,
    );
    return rows.map(({ pid }) => pid);
  });
}
