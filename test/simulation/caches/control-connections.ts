import { EventEmitter } from 'node:events';
import type pg from 'pg';
import type { ControlDatabase } from '../../../src/control/database.ts';
import type { CacheWorld } from './cache-world.ts';
import type { ControlModel, FeedSession } from './control-model.ts';
import type { VirtualProcess } from './virtual-process.ts';

interface Statement {
  name: string;
  text: string;
  values: unknown[];
}

/** After this time without a response, in ms, a connection of the pool counts as dead. */
const silenceMs = 9_000;

/** Returns the control database as a process sees it: `queryControl` and `revokeSession` reach the model. */
export function connectControl(
  world: CacheWorld,
  model: ControlModel,
  process: VirtualProcess,
  onRevoke = () => {},
): ControlDatabase {
  const send = <Result>(execute: () => Result): Promise<Result> =>
    process.promise<Result>((resolve, reject) => {
      const after = (run: () => void): void =>
        world.scheduler.after(Math.max(world.delay(), process.controlBlockedUntil - world.now), run);
      const isLost = (): boolean => !world.isCalm && world.random.chance(world.slowShare / 3);
      world.scheduler.after(silenceMs, () => reject(failure('ETIMEDOUT')));
      after(() => {
        if (!model.isUp || isLost()) return after(() => reject(failure('ECONNRESET')));
        const result = execute();
        const lost = isLost();
        after(() => (lost ? reject(failure('ECONNRESET')) : resolve(result)));
      });
    });
  const query = ({ name, text, values }: Statement) => send(() => ({ rows: model.execute(name, values, text) }));
  /** A transaction whose revocations take effect with its commit. */
  const connect = async () => {
    const revoked: string[] = [];
    const apply = (statement: Statement | string): object[] => {
      if (statement === 'commit')
        for (const sessionId of revoked) {
          onRevoke();
          model.change('sessions', sessionId, { revoked: true });
        }
      if (typeof statement === 'string' || statement.name === 'set_actor') return [];
      const { name, text, values } = statement;
      if (name !== 'revoke_session') return model.execute(name, values, text);
      revoked.push(String(values[0]));
      return [];
    };
    const execute = (statement: Statement | string) => send(() => ({ rows: apply(statement) }));
    return { query: execute, release: () => {} };
  };
  return {
    em: { getConnection: () => ({ getNativeClient: async () => ({ query, connect }) }) },
  } as unknown as ControlDatabase;
}

/** The `pg.Client` of a change feed. */
export class FeedClient extends EventEmitter {
  /** When the latest query that has been answered was sent: the feed is proved up to this simulated time. */
  provenAt = Number.NEGATIVE_INFINITY;
  readonly #world: CacheWorld;
  readonly #model: ControlModel;
  readonly #process: VirtualProcess;
  readonly #limits: pg.ClientConfig;
  readonly #rejects = new Set<(error: Error) => void>();
  #session: FeedSession | undefined;
  #hasEnded = false;

  constructor(world: CacheWorld, model: ControlModel, process: VirtualProcess, limits: pg.ClientConfig) {
    super();
    this.#world = world;
    this.#model = model;
    this.#process = process;
    this.#limits = limits;
  }

  get session(): FeedSession | undefined {
    return this.#session;
  }

  connect(): Promise<void> {
    return this.#limited(this.#limits.connectionTimeoutMillis, 'timeout exceeded when trying to connect', resolve => {
      const { scheduler } = this.#world;
      scheduler.after(Math.max(this.#world.delay(), this.#process.controlBlockedUntil - this.#world.now), () => {
        if (this.#hasEnded || this.#process.isDead) return;
        if (!this.#model.isUp) return this.#lose();
        this.#session = this.#model.openFeed(
          this.#process,
          payload => this.emit('notification', { payload }),
          () => this.#process.deliver(() => this.#lose()),
        );
        this.#session.query('', resolve);
      });
    });
  }

  query(text: string): Promise<void> {
    const sentAt = this.#world.now;
    const answered = this.#limited(this.#limits.query_timeout, 'Query read timeout', resolve => {
      if (this.#hasEnded) this.#lose();
      else this.#session?.query(text, resolve);
    });
    return answered.then(() => {
      this.provenAt = sentAt;
    });
  }

  async end(): Promise<void> {
    this.#hasEnded = true;
    this.#session?.end();
  }

  #limited(ms: unknown, message: string, send: (resolve: () => void) => void): Promise<void> {
    const timeLimit = Number(ms);
    return this.#process.promise<void>((resolve, reject) => {
      const timer = this.#process.clock.setTimeout(() => reject(new Error(message)), timeLimit);
      this.#rejects.add(reject);
      send(() => {
        this.#process.clock.clearTimeout(timer);
        this.#rejects.delete(reject);
        resolve(undefined);
      });
    });
  }

  #lose(): void {
    this.#hasEnded = true;
    for (const reject of this.#rejects) reject(new Error('Connection terminated unexpectedly'));
    this.#rejects.clear();
    this.emit('end');
  }
}

export function failure(code: string): Error {
  return Object.assign(new Error(`the connection failed: ${code}`), { code });
}
