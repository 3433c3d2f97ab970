import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { eventually } from '../../support/eventually.ts';
import { jsonLines } from '../../support/json-lines.ts';
import { useLogin, useWorld } from '../../support/world.ts';

const path = '/api/v1/EntityStatus';

describe('a control database that confirms no beats', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');

  it('while no beat is confirmed, a request that waits for a connection fails with unavailable, and the log names the control database', async () => {
    const { url } = await world.startAnotherServer({ ACQUIRE_TIMEOUT_MS: '1000' });
    const client = admin.at(url);

    await withConnection(world.installation.controlUrl, async session => {
      // Beats wait, and logins and look-ups go on.
      await session.query('begin; lock table processes in exclusive mode');
      const lost = () => world.logs.filter(line => line.includes('"beat_lost"')).length;
      await eventually(() => lost() === 2); // of each server

      const { status, body } = await client.get(path, { 'Cache-Control': 'no-cache' });

      expect({ status, code: body.code }).to.deep.equal({ status: 503, code: 'unavailable' });
      const line = await eventually(() =>
        jsonLines(world.logs.join('')).find(({ traceId }) => traceId === body.traceId),
      );
      expect(line?.err).to.include({
        code: 'NO_BEAT',
        message: 'the control database has confirmed no beat for 3 s',
      });
    });

    await eventually(async () => (await client.get(path)).status === 200);
  });
});
