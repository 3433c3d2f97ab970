import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { eventually } from '../../support/eventually.ts';
import { readLockWaiters } from '../../support/lock-waiters.ts';
import { useLogin, useWorld } from '../../support/world.ts';
import { rolesPath } from './people-world.ts';

describe('load of the control database', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');

  it('slow lists of one tenant leave the connections of the control database to the logins of others', async () => {
    const requests = 2 * world.config.controlConnections;

    await withConnection(world.config.databaseUrl ?? '', async client => {
      await client.query('begin; lock table audit_log in access exclusive mode');
      const lists = Array.from({ length: requests }, () =>
        admin.get('/api/v1/AuditLog?resource=User&sort=Id'),
      );
      await eventually(async () => (await readLockWaiters(client)).length > 0);

      await world.login(world.globex);
      expect(await readLockWaiters(client)).to.have.length(1);
      await client.query('rollback');
      for (const { status } of await Promise.all(lists)) expect(status).to.equal(200);
    });
  });

  it('changes of one tenant at the same time wait for each other, and all are made', async () => {
    const names = Array.from({ length: 50 }, (_, i) => `Shift ${i}`);
    const responses = await Promise.all(
      names.map(Name => admin.post(rolesPath, { Name, Permissions: [] })),
    );
    expect([...new Set(responses.map(({ status }) => status))]).to.deep.equal([201]);
  });
});
