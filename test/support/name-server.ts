import { spawnSync } from 'node:child_process';
import { Resolver } from 'node:dns/promises';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { type RunningScript, startProgram } from './command-line.ts';
import { eventually } from './eventually.ts';

/** True if a name server can be started, and a process be given another one: as root. */
export const canName =
  process.getuid?.() === 0 &&
  spawnSync('dnsmasq', ['--version']).status === 0 &&
  spawnSync('unshare', ['--mount', 'true']).status === 0;

/** A name server (dnsmasq), whose records change while a service runs. */
export class NameServer {
  readonly #address: string;
  readonly #hosts: string;
  readonly #resolv: string;
  readonly #names = new Map<string, readonly string[]>();
  readonly #resolver = new Resolver({ timeout: 1_000, tries: 1 });
  readonly #ttlSeconds: number;
  #running: RunningScript | undefined;

  /**
   * @param address of the loopback, at whose port 53 nothing listens
   * @param folder for its files
   */
  constructor(address: string, folder: string, ttlSeconds: number) {
    this.#address = address;
    this.#hosts = join(folder, 'hosts');
    this.#resolv = join(folder, 'resolv.conf');
    this.#ttlSeconds = ttlSeconds;
    this.#resolver.setServers([address]);
  }

  async start(): Promise<void> {
    await writeFile(this.#resolv, `nameserver ${this.#address}\n`);
    await this.#write();
    this.#running = startProgram(
      'dnsmasq',
      [
        '--no-daemon',
        '--conf-file=/dev/null',
        '--user=root',
        '--no-resolv',
        '--no-hosts',
        `--addn-hosts=${this.#hosts}`,
        `--local-ttl=${this.#ttlSeconds}`,
        '--local=/test/',
        `--listen-address=${this.#address}`,
        '--bind-interfaces',
      ],
      {},
    );
    for (const name of this.#names.keys()) await this.#waitFor(name);
  }

  /** Gives a name these addresses, and waits until the server says so. */
  async set(name: string, ...addresses: readonly string[]): Promise<void> {
    this.#names.set(name, addresses);
    await this.#write();
    this.signal('SIGHUP');
    await this.#waitFor(name);
  }

  /** Sends a signal: after SIGSTOP it takes questions, and answers none. */
  signal(signal: NodeJS.Signals): void {
    this.#running?.process.kill(signal);
  }

  /** Returns the words of a command that asks this server for all names. */
  commandThatAsks(command: readonly string[]): string[] {
    const script = `mount --bind '${this.#resolv}' /etc/resolv.conf && exec "$0" "$@"`;

    return ['unshare', '--mount', '--propagation', 'private', 'sh', '-c', script, ...command];
  }

  async close(): Promise<void> {
    const running = this.#running;
    if (!running || running.process.exitCode !== null) return;

    running.process.kill('SIGKILL');
    await running.ended;
  }

  #write(): Promise<void> {
    const lines = [...this.#names].flatMap(([name, addresses]) =>
      addresses.map(address => `${address} ${name}\n`),
    );

    return writeFile(this.#hosts, lines.join(''));
  }

  async #waitFor(name: string): Promise<void> {
    const wanted = [...(this.#names.get(name) ?? [])].sort();

    await eventually(async () => {
      const found = await this.#resolver.resolve4(name);
      return String(found.sort()) === String(wanted);
    });
  }
}

/** An address at which a server is found, or none, or one that has fallen silent. */
export class Address {
  readonly host: string;
  readonly port: number;
  readonly #sockets = new Set<Socket>();
  #server: Server | undefined;
  #upstreamPort: number;
  #isSilent = false;

  /** @param upstreamPort of a server on 127.0.0.1 */
  constructor(host: string, port: number, upstreamPort: number) {
    this.host = host;
    this.port = port;
    this.#upstreamPort = upstreamPort;
  }

  async listen(): Promise<void> {
    this.#server = createServer(client => {
      const upstream = connect(this.#upstreamPort, '127.0.0.1');

      for (const [socket, other] of [
        [client, upstream],
        [upstream, client],
      ] as const) {
        this.#sockets.add(socket);
        socket.on('data', bytes => {
          if (!this.#isSilent) other.write(bytes);
        });
        socket.on('error', () => {});
        socket.on('close', () => {
          this.#sockets.delete(socket);
          if (!this.#isSilent) other.destroy();
        });
      }
    });
    await once(this.#server.listen(this.port, this.host), 'listening');
  }

  /** Passes no byte any more; connections stay open, and further ones are accepted. */
  silence(): void {
    this.#isSilent = true;
  }

  /** Ends all connections; further ones are made to another server. */
  leadTo(upstreamPort: number): void {
    this.#upstreamPort = upstreamPort;
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Ends all connections, and refuses others. */
  async refuse(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    server?.close();
    for (const socket of this.#sockets) socket.destroy();
    if (server?.listening) await once(server, 'close');
  }
}
