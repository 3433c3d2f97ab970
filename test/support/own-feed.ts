import { Beat } from '../../src/control/beat.ts';
import { ChangeFeed } from '../../src/control/change-feed.ts';
import { newProcess } from '../../src/control/process-identity.ts';
import type { World } from './world.ts';

/** A change feed with a beat of its own, as each process has them. */
export interface OwnFeed {
  readonly feed: ChangeFeed;
  /** Resolves when the feed is current. */
  start(): Promise<void>;
  stop(): Promise<void>;
}

/** @param url of the control database, for the connection of the feed alone */
export function createOwnFeed(
  { installation, log }: World,
  url = installation.controlUrl,
): OwnFeed {
  const { pool, secrets } = installation;
  const beat = new Beat({ pool, process: newProcess('command'), budget: 32, secrets, log });
  const feed = new ChangeFeed({ url, beat, log });

  return {
    feed,
    start: async () => {
      await feed.start();
      await beat.join();
      await feed.requireDelivery();
    },
    stop: async () => {
      await feed.stop();
      await beat.leave();
    },
  };
}

/**
 * A change feed that is never started: nothing is in memory, and every look-up queries the
 * control database.
 */
export function createIdleFeed({
  installation,
  log,
}: Pick<World, 'installation' | 'log'>): ChangeFeed {
  return new ChangeFeed({ url: installation.controlUrl, beat: noBeat, log });
}

/** The beat of a process that does not beat. */
export const noBeat = { sentAt: () => undefined, isConfirmed: false };
