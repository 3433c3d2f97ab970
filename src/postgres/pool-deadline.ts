import type { Socket } from 'node:net';
import type pg from 'pg';
import { currentDeadline, type Deadline, DeadlineError } from '../deadline.ts';

type ConnectCallback = Parameters<pg.Pool['connect']>[0];

/**
 * Ends connections of a pool at the deadline of the request that uses them: the query rejects, and the connection is
 * never used again. A request whose deadline has passed gets no connection. For `driverOptions.onPoolCreated`.
 */
export function endAtDeadline(pool: pg.Pool): void {
  const forgetDeadline = new WeakMap<pg.PoolClient, () => void>();
  pool.on('release', (_error, client) => forgetDeadline.get(client)?.());

  const connect = pool.connect.bind(pool) as (callback: ConnectCallback) => void;
  const refuse = (callback: ConnectCallback): void => callback(new DeadlineError(), undefined, () => {});
  const connectBefore = (deadline: Deadline, callback: ConnectCallback): void =>
    connect((error, client, release) => {
      if (!client) {
        callback(error, client, release);
      } else if (deadline.passed) {
        release();
        refuse(callback);
      } else {
        const { stream } = client.connection as unknown as { stream: Socket };
        const forget = deadline.onPass(() => stream.destroy());
        forgetDeadline.set(client, forget);
        callback(error, client, release);
      }
    });
  const connectInTime = (callback: ConnectCallback): void => {
    const deadline = currentDeadline();
    if (!deadline) connect(callback);
    else if (deadline.passed) refuse(callback);
    else connectBefore(deadline, callback);
  };
  // `pg` and its users call it with a callback or for a promise.
  pool.connect = ((callback?: ConnectCallback) =>
    callback
      ? connectInTime(callback)
      : new Promise((resolve, reject) =>
          connectInTime((error, client) => (client ? resolve(client) : reject(error))),
        )) as typeof pool.connect;
}
