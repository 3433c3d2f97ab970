import { randomUUID } from 'node:crypto';
import { expect } from 'chai';
import { type ServedTenant, WebhookQueue } from '../../../src/sales/webhooks/webhook-queue.ts';
import { createTenantKey } from '../../../src/sales/webhooks/webhook-secret.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld } from '../../support/world.ts';

const written = 'before the last look';
const served: ServedTenant = {
  endpoints: [{ isEnabled: true, disabledReason: null, failingSince: null }],
  written,
  failing: undefined,
  feedCursor: null,
  dueInMs: null,
};

describe('the queue of tenants with webhooks', () => {
  const world = use(createWorld);

  it('a tenant is due again when its database was written to after it was served last, and not because of earlier writes', async () => {
    await world.service.stop(); // so that no process but this one serves the tenant
    const { acme, control, installation } = world;
    const queue = new WebhookQueue(control, randomUUID());
    const poll = (seen: string) => queue.markDue(new Map([[acme.guid, seen]]));

    const serve = async (work: () => Promise<void> = async () => {}): Promise<void> => {
      await controlSql(world, 'update webhook_tenants set due_at = now()');
      const [leased] = await queue.lease(1, [], []);
      await work();
      await queue.release(leased!, served);
    };

    const isDue = async () =>
      (
        await controlSql<{ due: boolean }>(
          world,
          'select due_at is not null as due from webhook_tenants',
        )
      )[0]?.due;

    await queue.activate(acme.id, () => createTenantKey(installation.secrets, acme.guid));

    await serve();
    await poll(written);
    expect(await isDue(), 'after a poll that has seen what the last look had').to.equal(false);

    await poll('after the last look');
    expect(await isDue(), 'after a poll that has seen more').to.equal(true);

    await serve(() => poll(written));
    expect(
      await isDue(),
      'after a poll during the service that has seen what the last look had',
    ).to.equal(false);

    await serve(() => poll('something else'));
    expect(await isDue(), 'after a poll during the service that has seen something else').to.equal(
      true,
    );
  });
});
