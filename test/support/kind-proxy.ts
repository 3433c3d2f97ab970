import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

/** The kinds of connections of a process, by their names in `pg_stat_activity`. */
type Kind = 'api' | 'control' | 'change-feed';

/** The fault of the connections of one kind. */
export interface Fault {
  /** Ends the connections, and refuses new ones. */
  readonly isCut?: boolean;
  /** Passes nothing in either direction; sockets stay open. */
  readonly isFrozen?: boolean;
  /** Passes a packet that has this text, and nothing afterwards. */
  readonly freezesAfter?: string;
  /** Passes neither a packet that has this text nor anything afterwards. */
  readonly freezesBefore?: string;
  /** Passes all bytes so many ms later. */
  readonly lagMs?: number;
  /** Drops what the server notifies, as a pooler in transaction mode does. */
  readonly isDeaf?: boolean;
  /** Ends the connections, and opens new ones to this database, whose name is as long. */
  readonly elsewhere?: string;
  /** Ends the connections, and opens new ones to the server of this URL. */
  readonly server?: string;
}

/** A proxy between one process and PostgreSQL, with faults for some of its connections. */
export interface KindProxy {
  through(url: string): string;
  /** Begins a fault; without one, ends it. */
  set(kind: Kind, fault?: Fault): void;
  close(): void;
}

interface Connection {
  readonly kind: string;
  readonly sockets: readonly [Socket, Socket];
  isFrozen: boolean;
}

/**
 * The type of the message with a notification (PostgreSQL, "Message Formats"), which comes in a
 * packet of its own.
 */
const notification = 'A'.charCodeAt(0);

export async function startKindProxy(target: string): Promise<KindProxy> {
  const faults = new Map<string, Fault>();
  const connections = new Set<Connection>();

  function open(client: Socket, startup: Buffer): void {
    const text = startup.toString('latin1');
    const kind = /application_name\0backoffice-([a-z-]+)/.exec(text)?.[1] ?? '';
    const { isCut, elsewhere, server: url = target } = faults.get(kind) ?? {};
    if (isCut) return void client.resetAndDestroy();
    if (elsewhere !== undefined) {
      const at = text.indexOf('database\0') + 'database\0'.length;
      startup.write(elsewhere, at, 'latin1');
    }

    const { hostname, port } = new URL(url);
    const upstream = connect(Number(port), hostname);
    const connection: Connection = { kind, sockets: [client, upstream], isFrozen: false };
    connections.add(connection);
    for (const [from, to] of [[client, upstream] as const, [upstream, client] as const]) {
      from.setNoDelay(true);
      from.on('error', () => {});
      from.on('close', () => {
        connections.delete(connection);
        to.destroy();
      });
      from.on('data', packet => pass(connection, packet, to));
    }
    upstream.write(startup);
  }

  function pass(connection: Connection, packet: Buffer, to: Socket): void {
    const { kind, sockets } = connection;
    const { isFrozen, freezesAfter, freezesBefore, lagMs = 0, isDeaf } = faults.get(kind) ?? {};
    if (freezesBefore !== undefined && packet.includes(freezesBefore)) connection.isFrozen = true;
    if (isFrozen || connection.isFrozen) return;
    if (freezesAfter !== undefined && packet.includes(freezesAfter)) connection.isFrozen = true;
    if (isDeaf && to === sockets[0] && packet[0] === notification) return;
    if (lagMs > 0) setTimeout(() => to.write(packet), lagMs);
    else to.write(packet);
  }

  const server = createServer(client => {
    client.on('error', () => {});
    client.once('data', startup => open(client, startup));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const own = String((server.address() as AddressInfo).port);

  const endAll = (isMeant: (kind: string) => boolean): void => {
    for (const { kind, sockets } of connections) if (isMeant(kind)) sockets[0].destroy();
  };
  return {
    through: url => Object.assign(new URL(url), { host: `127.0.0.1:${own}` }).href,
    set: (kind, fault) => {
      if (fault) faults.set(kind, fault);
      else faults.delete(kind);
      // A connection that was frozen has lost bytes, and one that leads elsewhere stays there.
      const { isCut, elsewhere, server: url } = fault ?? {};
      if (!fault || isCut || elsewhere !== undefined || url !== undefined) {
        endAll(each => each === kind);
      }
    },
    close: () => {
      server.close();
      endAll(() => true);
    },
  };
}
