import { use } from '../support/use.ts';
import { takeWebhookSample } from '../support/webhook-sample.ts';
import { expectStored, trustedSample } from '../support/webhook-sample-expectations.ts';
import { createWorld } from '../support/world.ts';

describe('the receiver of webhooks in the guide', () => {
  const sample = use(() => takeWebhookSample('Node'));
  const world = use(() => createWorld({ WEBHOOK_TRUSTED_RECEIVERS: trustedSample(sample) }));

  it('stores each message that has the signature of its secret, as printed with standardwebhooks, and refuses any other', async () => {
    const acme = await world.login(world.acme);
    const globex = await world.login(world.globex);

    await expectStored(sample, '/backoffice', { acme, globex });
  });
});
