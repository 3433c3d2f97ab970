import type { StoredEndpoint } from './endpoint-state.ts';
import { type EndpointServices, serveEndpoint } from './serve-endpoint.ts';
import { selectEndpoints } from './webhook-store.ts';

/** Says to the service of a tenant that there may be more to send. */
export class Wakes {
  #isWoken = false;
  #next = Promise.withResolvers<void>();

  wake(): void {
    this.#isWoken = true;
    this.#next.resolve();
  }

  /** Returns true once after `wake`. */
  take(): boolean {
    const was = this.#isWoken;
    this.#isWoken = false;
    this.#next = Promise.withResolvers();
    return was;
  }

  /** Resolves when there was a `wake` that nobody took. */
  wait(): Promise<void> {
    return this.#next.promise;
  }
}

/**
 * Serves the endpoints of a tenant side by side, until none has anything to send. One that is woken meanwhile goes on
 * while another one waits for its receiver.
 * @returns true if changes follow that are not final yet
 * @throws when the tenant's database cannot be used; until the active sends have ended, the lease is kept
 */
export async function serveWebhooks(services: EndpointServices, wakes: Wakes): Promise<boolean> {
  const active = new Map<number, Promise<void>>();
  const failures: unknown[] = [];
  let isHeld = false;
  let round = 0;
  const serve = async (endpoint: StoredEndpoint, begun: number): Promise<void> => {
    await serveEndpoint(services, endpoint).then(
      held => (isHeld ||= held),
      error => failures.push(error),
    );
    active.delete(endpoint.id);
    if (begun < round) wakes.wake(); // it may have read the feed before the last wake
  };
  const begin = async (): Promise<void> => {
    round++;
    const before = new Set(active.keys()); // what is read of them is old when it arrives
    const endpoints = (await services.read(selectEndpoints(services.now()))) as unknown as StoredEndpoint[];
    for (const each of endpoints) if (!before.has(each.id)) active.set(each.id, serve(each, round));
  };
  for (let isDue = true; isDue || active.size > 0; isDue = wakes.take()) {
    if (isDue && services.mayGoOn() && failures.length === 0) await begin().catch(error => failures.push(error));
    if (active.size > 0) await Promise.race([...active.values(), wakes.wait()]);
  }
  if (failures.length > 0) throw failures[0];
  return isHeld;
}
