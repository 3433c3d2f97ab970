import { expect } from 'chai';
import { eventually } from '../../support/eventually.ts';
import { use } from '../../support/use.ts';
import { createWorld } from '../../support/world.ts';
import { startReceiver } from './receiver.ts';

describe('retries of webhooks beside a slow receiver', function () {
  this.slow(20_000);

  const receiver = use(startReceiver);
  const world = use(() => createWorld({ WEBHOOK_TRUSTED_RECEIVERS: receiver.trusted }));

  it('a retry that is due does not wait until another endpoint of its tenant has been served', async () => {
    const admin = await world.login(world.acme);
    const slowMs = 8_000; // the sender waits for 10 s
    const changes = 10;
    let isDown = true;
    receiver.respond(
      '/slow',
      response => void setTimeout(() => response.writeHead(204).end(), slowMs).unref(),
    );
    receiver.respond('/failing', response => {
      response.writeHead(isDown ? 500 : 204).end();
      isDown = false;
    });
    for (const at of ['/slow', '/failing']) {
      const options = { Url: receiver.url(at), Resources: ['OrderStatus'] };
      expect((await admin.post('/api/v1/Webhooks', options)).status).to.equal(201);
    }

    for (let change = 0; change < changes; change++) {
      expect(
        (await admin.post('/api/v1/OrderStatuses', { Name: `Status ${change}` })).status,
      ).to.equal(201);
    }
    await eventually(() => receiver.at('/failing').length === changes + 1, 90_000);

    // The retry follows after 5 s; the slow receiver needs 72 s until it has the last change.
    expect(receiver.at('/slow').length).to.be.below(changes - 1);
  });
});
