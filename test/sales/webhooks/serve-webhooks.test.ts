import { expect } from 'chai';
import type { StoredEndpoint } from '../../../src/sales/webhooks/endpoint-state.ts';
import type { EndpointServices } from '../../../src/sales/webhooks/serve-endpoint.ts';
import { serveWebhooks, Wakes } from '../../../src/sales/webhooks/serve-webhooks.ts';
import {
  countAndCheck,
  selectDueMessages,
  selectEndpoints,
} from '../../../src/sales/webhooks/webhook-store.ts';

const endpointOf = (id: number): StoredEndpoint => ({
  id,
  url: 'https://receiver.test',
  resources: [],
  actions: [],
  payload: 'thin',
  position: '',
  positionAt: 0,
  version: 1,
  failures: 1,
  failingSince: 0,
  dueMessages: 1,
  isEnabled: true,
  disabledReason: null,
  userId: 1,
  dueAt: 60_000,
  written: '1 2 3',
  nextAttemptAt: 60_000,
  secret: Buffer.alloc(0),
  previous: [],
});
const ids = [1, 2, 3];
/**
 * Reads at most: two and one by each endpoint, and after a wake of the list, of each endpoint,
 * and by it.
 */
const neededReads = (wakes: number): number => 2 + ids.length + wakes * (1 + 2 * ids.length);
/**
 * The maximum number of reads: more than any service needs. The serving ends there, so that a
 * test fails in place of running for ever.
 */
const maxReads = 200;

/**
 * Serves three endpoints that have nothing to send, and look for messages: each takes another
 * number of turns.
 * @param wakesAt the numbers of looks after which there is a wake
 * @returns the endpoints in the order of their looks, and the number of looks before the last
 *   wake
 */
async function serve(
  wakesAt: readonly number[],
): Promise<{ looks: number[]; beforeLastWake: number; reads: number }> {
  const wakes = new Wakes();
  const looks: number[] = [];
  let beforeLastWake = 0;
  let reads = 0;

  const endpointsText = selectEndpoints(0).text;
  const read: EndpointServices['read'] = async ({ text, values }) => {
    reads++;
    if (text === countAndCheck(undefined).text) return [];
    const id = values[text === endpointsText ? 1 : 0] as number | null;
    if (text === endpointsText) {
      return ids.filter(each => id === null || each === id).map(endpointOf) as never;
    }

    expect(text).to.equal(selectDueMessages(0, 0).text);
    looks.push(id!);
    if (wakesAt.includes(looks.length)) {
      wakes.wake();
      beforeLastWake = looks.length;
    }

    for (let turn = 0; turn < 7 * id!; turn++) await undefined;
    return [];
  };

  const readerOf = async () => ({ scope: 'All', entityId: null, permissions: new Set() });
  const services = {
    read,
    readerOf,
    now: () => 0,
    mayGoOn: () => reads < maxReads,
  } as unknown as EndpointServices;

  expect((await serveWebhooks(services, wakes, null)).isOpen).to.equal(false);

  return { looks, beforeLastWake, reads };
}

describe('serving the webhooks of a tenant', () => {
  it('the serving ends when no endpoint has anything to send, after it has looked at each once', async () => {
    const { looks } = await serve([]);
    expect(looks.sort()).to.deep.equal(ids);
  });

  it('after a wake at any moment, every endpoint is looked at again before the serving ends', async () => {
    for (let first = 1; first <= 6; first++) {
      for (let second = first; second <= 9; second++) {
        const { looks, beforeLastWake, reads } = await serve([first, second]);
        expect(looks.slice(beforeLastWake), `${first}, ${second}`).to.include.members(ids);
        expect(reads, `${first}, ${second}`).to.be.at.most(neededReads(2));
      }
    }
  });
});
