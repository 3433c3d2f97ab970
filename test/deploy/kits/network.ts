import net from 'node:net';

// Loaded before a program of a kit: the names of PostgreSQL servers in the kit's network are
// those of a server of the test. TLS still checks the names.

/** Ports of this machine by the names of hosts. */
const ports: Record<string, number> = JSON.parse(process.env.KIT_NETWORK ?? '{}');
const connect = net.Socket.prototype.connect;

/** Replaces the form that the driver of PostgreSQL uses: `connect(port, host)`. */
net.Socket.prototype.connect = function (this: net.Socket, ...args: unknown[]): net.Socket {
  const port = ports[String(args[1])];
  const known = port === undefined ? args : [port, '127.0.0.1', ...args.slice(2)];
  return Reflect.apply(connect, this, known);
} as typeof connect;
