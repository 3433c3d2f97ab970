import { expect } from 'chai';
import type { Client } from './client.ts';
import { eventually } from './eventually.ts';
import type { WebhookSample } from './webhook-sample.ts';
import { readWorldTemplate } from './world-template.ts';

/** Returns WEBHOOK_TRUSTED_RECEIVERS that lets the tenants of every world send to a sample. */
export function trustedSample({ url }: WebhookSample): string {
  return readWorldTemplate()
    .tenants.map(({ guid }) => `${guid}=${url}/`)
    .join();
}

/**
 * Lets two tenants send a change to a sample, which has the secret of the first one.
 * @param path the path of the sample
 */
export async function expectStored(
  sample: WebhookSample,
  path: string,
  { acme, globex }: { acme: Client; globex: Client },
): Promise<void> {
  const webhook = { Url: `${sample.url}${path}`, Resources: ['OrderStatus'] };
  const [own, other] = [
    await acme.post('/api/v1/Webhooks', webhook),
    await globex.post('/api/v1/Webhooks', webhook),
  ];
  await sample.start(own.body.Secret);

  await globex.post('/api/v1/OrderStatuses', { Name: 'Of globex' });
  const { body: status } = await acme.post('/api/v1/OrderStatuses', { Name: 'Of acme' });

  const deliveriesOf = (client: Client, { body }: typeof own) =>
    eventually(async () => {
      const deliveries = await client.get(`/api/v1/Webhooks/${body.Id}/Deliveries`);
      return deliveries.body.length > 0 && deliveries.body;
    }, 30_000);
  const [sent] = await deliveriesOf(acme, own);
  const [refused] = await deliveriesOf(globex, other);

  expect(sent.Status).to.equal(204);
  expect(refused.Status).to.be.within(400, 500);
  const stored = await sample.stored();
  expect(stored, JSON.stringify(stored)).to.have.length(1);
  expect(stored[0]?.id).to.equal(sent.MessageId);
  expect(stored[0]?.message?.type).to.equal('order_status.created');
  expect(stored[0]?.message?.data.Key).to.equal(String(status.Id));
}
