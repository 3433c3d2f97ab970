import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

/** A TCP proxy in front of one server, whose network can fail. */
export interface FaultProxy {
  readonly port: number;
  /**
   * Passes all bytes this much later, in ms, for connections that are opened from now on and
   * those that are open.
   */
  delay(ms: number): void;
  /**
   * Passes nothing in either direction; sockets stay open. New connections are accepted, and
   * wait as well.
   */
  silence(): void;
  /** Ends all connections, and refuses new ones. */
  cut(): void;
  /**
   * Ends the fault.
   * @param isReset true to end the connections that the fault has met
   */
  heal(isReset: boolean): void;
  close(): void;
}

/** Starts a proxy to a port of the loopback. */
export async function startFaultProxy(targetPort: number): Promise<FaultProxy> {
  const sockets = new Set<Socket>();
  let delayMs = 0;
  let isSilent = false;
  let isCut = false;

  const pipe = (from: Socket, to: Socket): void => {
    from.setNoDelay(true);
    from.on('error', () => {});
    from.on('data', bytes => {
      if (delayMs === 0) to.write(bytes);
      else setTimeout(() => to.write(bytes), delayMs);
    });
    from.on('close', () => {
      sockets.delete(from);
      to.destroy();
    });
    if (isSilent) from.pause();
    sockets.add(from);
  };
  const server = createServer(client => {
    if (isCut) return client.resetAndDestroy();
    const upstream = connect(targetPort, '127.0.0.1');
    pipe(client, upstream);
    pipe(upstream, client);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const reset = (): void => {
    for (const socket of sockets) socket.resetAndDestroy();
  };
  return {
    port: (server.address() as AddressInfo).port,
    delay: ms => {
      delayMs = ms;
    },
    silence: () => {
      isSilent = true;
      for (const socket of sockets) socket.pause();
    },
    cut: () => {
      isCut = true;
      reset();
    },
    heal: isReset => {
      delayMs = 0;
      isCut = false;
      isSilent = false;
      if (isReset) reset();
      else for (const socket of sockets) socket.resume();
    },
    close: () => {
      server.close();
      reset();
    },
  };
}
