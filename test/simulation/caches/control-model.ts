import { type ChangeTopic, changeChannel, changeTopics } from '../../../src/control/change-topics.ts';
import { type CacheWorld, Channel } from './cache-world.ts';
import type { TenantServer } from './tenant-server.ts';
import type { VirtualProcess } from './virtual-process.ts';

type Row = Record<string, unknown>;

/** The control database: rows by topic and key, and the sessions that listen to their changes. */
export class ControlModel {
  isUp = true;
  readonly #world: CacheWorld;
  readonly #rows = new Map<string, Row>();
  readonly #feeds = new Set<FeedSession>();
  readonly #server: TenantServer;

  /** @param server the server of the control database, which also has tenant databases */
  constructor(world: CacheWorld, server: TenantServer) {
    this.#world = world;
    this.#server = server;
  }

  get feeds(): readonly FeedSession[] {
    return [...this.#feeds];
  }

  /** Commits a change of a row, which a trigger announces. */
  change(topic: ChangeTopic, key: string, change: Row): void {
    const id = `${topic}:${key}`;
    this.#rows.set(id, { ...this.#rows.get(id), ...change });
    this.#world.trace(() => `control ${id} ${JSON.stringify(change)}`);
    this.notify([id]);
  }

  notify(payloads: readonly string[]): void {
    for (const feed of this.#feeds) for (const payload of payloads) feed.notify(payload);
  }

  /** Executes a statement of `queryControl`. */
  execute(name: string, values: readonly unknown[], text: string): Row[] {
    if (name === 'announce') {
      this.notify(values[0] as string[]);
      return [];
    }
    if (name === 'write_monitor') return this.#server.poll(text).map(row => ({ ...row }));
    const found = this.#row(name, String(values[0]));
    return found ? [{ ...found }] : [];
  }

  openFeed(process: VirtualProcess, receive: (payload: string) => void, onEnd: () => void): FeedSession {
    const feed = new FeedSession(this.#world, process, receive, () => {
      this.#feeds.delete(feed);
      onEnd();
    });
    this.#feeds.add(feed);
    return feed;
  }

  /** Ends every session, and accepts none until `isUp` is true again. */
  shutDown(): void {
    this.isUp = false;
    for (const feed of this.#feeds) feed.end();
  }

  #row(name: string, key: string): Row | undefined {
    const { tenants, users, roles, sessions } = changeTopics;
    if (name === 'tenant_by_guid') return this.#rows.get(`${tenants}:${key}`);
    const user = (id: unknown): Row => ({ ...this.#rows.get(`${users}:${id}`) });
    const role = (id: unknown): Row => ({ ...this.#rows.get(`${roles}:${id}`) });
    if (name === 'user_by_id') return { user: user(key) };
    if (name === 'role_by_id') return { role: role(key) };
    if (name !== 'session_by_id') throw new Error(`the simulation does not know the statement ${name}`);
    const session = this.#rows.get(`${sessions}:${key}`);
    if (!session) return undefined;
    const owner = user(session.userId);
    return { revoked: session.revoked, user: owner, role: role(owner.roleId) };
  }
}

/** The session of a change feed, on the side of the server. */
export class FeedSession {
  readonly process: VirtualProcess;
  /** Set while the session stays on an earlier primary, which responds but receives no notification. */
  detachedAt: number | undefined;
  readonly #world: CacheWorld;
  readonly #up: Channel;
  readonly #down: Channel;
  readonly #receive: (payload: string) => void;
  readonly #onEnd: () => void;
  #pending: string[] = [];
  #isListening = false;
  #hasEnded = false;

  constructor(world: CacheWorld, process: VirtualProcess, receive: (payload: string) => void, onEnd: () => void) {
    this.#world = world;
    this.process = process;
    this.#receive = receive;
    this.#onEnd = onEnd;
    this.#up = new Channel(world);
    this.#down = new Channel(world);
    this.block(process.controlBlockedUntil);
  }

  /** Holds all messages back until a simulated time. */
  block(until: number): void {
    this.#up.blockedUntil = this.#down.blockedUntil = until;
  }

  notify(payload: string): void {
    if (!this.#isListening || this.detachedAt !== undefined) return;
    const { random, scheduler, isCalm } = this.#world;
    this.#pending.push(payload);
    scheduler.after(random.between(0, !isCalm && random.chance(0.2) ? 3_000 : 5), () => this.#flush());
  }

  /** Executes a query; `reply` is called when the response reaches the process. */
  query(text: string, reply: () => void): void {
    this.#up.send(() => {
      if (this.#hasEnded) return;
      if (text === `listen ${changeChannel}`) this.#isListening = true;
      this.#flush(); // PostgreSQL delivers pending notifications before it completes a response
      this.#down.send(() => this.process.deliver(reply));
    });
  }

  /** Ends the session. The process learns of it some time later. */
  end(): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#up.close();
    this.#down.close();
    this.#world.scheduler.after(this.#world.delay(), this.#onEnd);
  }

  #flush(): void {
    for (const payload of this.#pending) this.#down.send(() => this.process.deliver(() => this.#receive(payload)));
    this.#pending = [];
  }
}
