import { type EndpointServices, serveEndpoint } from './serve-endpoint.ts';
import { type StoredEndpoint, selectEndpoints } from './webhook-store.ts';

/** Says to the service of a tenant that there may be more to send. */
export interface Wakes {
  wake(): void;
  /** True once after `wake`. */
  take(): boolean;
  /** Resolves when there was a `wake` that nobody took. */
  wait(): Promise<void>;
}

export function createWakes(): Wakes {
  let isWoken = false;
  let next = Promise.withResolvers<void>();
  return {
    wake: () => {
      isWoken = true;
      next.resolve();
    },
    take: () => {
      const was = isWoken;
      isWoken = false;
      next = Promise.withResolvers();
      return was;
    },
    wait: () => next.promise,
  };
}

/**
 * Serves the endpoints of a tenant side by side, until none has anything to send. One that is woken meanwhile goes on
 * while another one waits for its receiver.
 * @returns true if changes follow that are not final yet
 * @throws when the tenant's database cannot be used
 */
export async function serveWebhooks(services: EndpointServices, wakes: Wakes): Promise<boolean> {
  const active = new Map<number, Promise<void>>();
  let failure: { error: unknown } | undefined;
  let isHeld = false;
  /** Endpoints that may have read the feed before the last wake. */
  let late = new Set<number>();
  const serve = async (endpoint: StoredEndpoint): Promise<void> => {
    try {
      if (await serveEndpoint(services, endpoint)) isHeld = true;
    } catch (error) {
      failure ??= { error };
    } finally {
      active.delete(endpoint.id);
    }
  };
  for (let isDue = true; isDue || active.size > 0; ) {
    if (isDue && services.mayGoOn() && !failure) {
      late = new Set(active.keys());
      try {
        // One that was active has moved on since it was read.
        for (const endpoint of (await services.read(selectEndpoints(services.now()))) as unknown as StoredEndpoint[])
          if (!late.has(endpoint.id)) active.set(endpoint.id, serve(endpoint));
      } catch (error) {
        failure ??= { error }; // thrown when the active sends have ended: until then the lease is kept
      }
    }
    if (active.size > 0) await Promise.race([...active.values(), wakes.wait()]);
    const isOneLate = [...late].some(id => !active.has(id));
    const isWoken = wakes.take();
    isDue = (isWoken || isOneLate) && services.mayGoOn() && !failure;
  }
  if (failure) throw failure.error;
  return isHeld;
}
