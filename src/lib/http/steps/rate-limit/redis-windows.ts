import { once } from 'node:events';
import {
  connect,
  getDefaultAutoSelectFamilyAttemptTimeout,
  isIP,
  type TcpNetConnectOpts,
} from 'node:net';
import { Redis, type RedisOptions, ReplyError } from 'ioredis';
import { OperatorError } from '../../../log/operator-error.ts';
import { asError, codeOf } from '../../../narrow.ts';
import { within } from '../../../runtime/within.ts';
import { beginPacket, sendPacket } from '../../../seams/redis-packet.ts';
import { type CallBatch, createCallBatches } from './call-batches.ts';
import { connectionClosed, isReadOnly } from './redis-failure.ts';
import type { SharedWindows } from './shared-windows.ts';
import { groupSpan, type Rate, type RateLimitResult } from './sliding-window.ts';

/**
 * Maximum addresses of a name: a connection is given up after their time. Node tries one after
 * the other, each for 250 ms in version 24, and for 500 ms in version 26. With less, a name
 * whose first addresses are silent would lead nowhere.
 */
const maxAddresses = 4;

const connectMs = maxAddresses * getDefaultAutoSelectFamilyAttemptTimeout();

const maxStartMs = connectMs + 200; // so that a time-out of the connection is reported as one

const maxRefusalMs = 500;

const connection = {
  lazyConnect: true, // `started` connects
  connectionName: 'rate-limits',
  disableClientInfo: true,
  enableReadyCheck: false, // it takes the right to INFO; calls find out what Redis can do
  enableOfflineQueue: false, // a call without a connection fails at once instead of waiting for one
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  connectTimeout: connectMs,
  socketTimeout: 2_000, // replaces a connection whose peer is gone without closing it
  retryStrategy: (attempt: number) => Math.min(50 * 2 ** attempt, 1_000) + Math.random() * 100,
};

interface RedisWindowsOptions {
  url: string;
  /** The beginning of each key, so that several installations can use one Redis. */
  installationId: string;
  /**
   * Returns the time in milliseconds; by default the clock of Redis counts, which all processes
   * share.
   */
  now?: (() => number) | undefined;
}

type SlidingRedis = Redis & { slide: (...args: (string | number)[]) => Promise<number[]> };
type CommandError = Error & { command?: { name?: string } };

/**
 * The windows that all processes share in Redis. Each window has one key, which expires with
 * it.
 *
 * A call that fails for want of a connection is rejected with the last error of the connection:
 * a wrong password is not reported as a missing reply.
 */
export class RedisWindows implements SharedWindows {
  readonly hit: SharedWindows['hit'];
  readonly peek: SharedWindows['peek'];
  readonly #redis: SlidingRedis;
  readonly #now: (() => number) | undefined;
  /** The last error of the connection; undefined once it is ready. */
  #connectionError: Error | undefined;
  /** The refusal of the database of the URL: ioredis would go on in database 0. */
  #selectError: Error | undefined;
  #isReady = false;
  /** Resolves when a refusal was read, if there is one. */
  #refusal: Promise<void> = Promise.resolve();

  constructor({ url, installationId, now }: RedisWindowsOptions) {
    this.#now = now;
    this.#redis = new Redis(url, {
      ...connection,
      ...tlsOf(url),
      keyPrefix: `${installationId}:`,
      reconnectOnError: error => {
        if (!isReadOnly(error)) return false;
        this.#connectionError = error;
        return true; // the address may lead to the new primary
      },
    }) as SlidingRedis;
    this.#redis.defineCommand('slide', { numberOfKeys: 1, lua: slide });
    acceptNeedlessPassword(this.#redis);
    shortenDenial(this.#redis);
    this.#followConnection();

    const { hit, peek } = createCallBatches(batches => this.#count(batches));
    this.hit = hit;
    this.peek = peek;
  }

  async started(): Promise<void> {
    await within(this.#redis.connect(), maxStartMs).catch(() => {});
    await this.#refusal;
    if (!this.#selectError) return;

    this.close();
    throw new OperatorError(
      `REDIS_URL names database ${this.#redis.options.db}, which Redis refuses (${this.#selectError.message}): ` +
        'leave it out, for database 0, or let Redis have it, and its login +select',
    );
  }

  reconnect(cause: unknown): void {
    if (!this.#isReady) return; // ioredis is connecting

    this.#connectionError = asError(cause);
    this.#redis.disconnect(true);
  }

  close(): void {
    this.#redis.disconnect();
  }

  #followConnection(): void {
    this.#redis.on('ready', () => {
      this.#isReady = true;
      this.#connectionError = undefined;
    });

    this.#redis.on('error', (error: CommandError) => {
      if (error.command?.name === 'select') this.#selectError = error;
      else this.#connectionError = error;
    });

    this.#redis.on('close', () => {
      const wasReady = this.#isReady;
      this.#isReady = false;
      this.#selectError = undefined;
      this.#connectionError ??= closedError();

      if (!wasReady && isCut(this.#connectionError)) this.#refusal = this.#readRefusal();
    });
  }

  /**
   * Replaces the error of a connection that was closed before anything was sent by the refusal
   * of the server.
   */
  async #readRefusal(): Promise<void> {
    const { host, port, tls } = this.#redis.options;
    if (tls) return;

    const refusal = await readRefusal({ host, port: Number(port) });
    if (refusal && !this.#isReady) this.#connectionError = refusal;
  }

  #count(batches: readonly CallBatch[]): Promise<RateLimitResult>[] {
    beginPacket(this.#redis);
    const results = batches.map(async ({ key, rate, calls }) => {
      const [remaining = 0, resetMs = 0] = await this.#slide(key, rate, calls);
      return { remaining, resetMs };
    });
    sendPacket(this.#redis);

    return results;
  }

  async #slide(key: string, rate: Rate, calls: number): Promise<number[]> {
    if (this.#selectError) throw this.#selectError;

    try {
      const now = this.#now?.() ?? '';
      return await this.#redis.slide(key, rate.max, rate.windowMs, groupSpan(rate), calls, now);
    } catch (error) {
      if (error instanceof ReplyError) throw error;
      throw this.#connectionError ?? error;
    }
  }
}

/** The error of a connection that Redis has ended without a message. */
function closedError(): Error {
  return Object.assign(new Error('Redis has closed the connection'), { code: connectionClosed });
}

const cutCodes = new Set([connectionClosed, 'ECONNRESET', 'EPIPE']);

/**
 * True if the other side has ended the connection without a message, or the message was lost.
 */
function isCut(error: Error): boolean {
  return cutCodes.has(codeOf(error) ?? '');
}

/**
 * Reads the message that Redis sends to a client before it closes the connection: with too many
 * clients, and in protected mode. A client that writes at once, as ioredis does, may lose this
 * message, because its write to a closed connection fails first.
 */
async function readRefusal(address: TcpNetConnectOpts): Promise<Error | undefined> {
  const socket = connect({ ...address, timeout: maxRefusalMs });
  socket.on('timeout', () => socket.destroy());

  try {
    const [first] = await Promise.race([
      once(socket, 'data'),
      once(socket, 'close').then(() => []),
    ]);
    const [line = ''] = String(first ?? '').split('\r\n');
    return line.startsWith('-') ? new Error(line.slice(1)) : undefined;
  } catch {
    return undefined; // Redis accepts no connections by now
  } finally {
    socket.destroy();
  }
}

/**
 * Ignores the refusal of a password that a Redis before version 6 does not ask for. ioredis
 * does so, too, but prints a line of its own.
 */
function acceptNeedlessPassword(redis: Redis): void {
  const send = redis.auth.bind(redis) as (credentials: string) => Promise<'OK'>;
  const accept = async (credentials: string): Promise<'OK'> => {
    try {
      return await send(credentials);
    } catch (error) {
      const { message } = asError(error);
      if (/no password is set|without any password configured/.test(message)) return 'OK';
      if (!/wrong number of arguments/.test(message)) throw error;
      throw new Error('WRONGPASS this Redis has no users: leave the user out of REDIS_URL');
    }
  };

  redis.auth = accept as typeof redis.auth;
}

/**
 * Shortens the refusal of the protected mode: it has the words by which ioredis recognises a
 * needless password, so ioredis would print that the password is needless, which is not true.
 */
function shortenDenial(redis: Redis): void {
  const send = redis.hello.bind(redis) as (...words: unknown[]) => Promise<unknown>;
  const hello = async (...words: unknown[]): Promise<unknown> => {
    try {
      return await send(...words);
    } catch (error) {
      if (error instanceof Error && error.message.startsWith('DENIED')) {
        error.message = 'DENIED protected mode';
      }
      throw error;
    }
  };

  redis.hello = hello as typeof redis.hello;
}

/**
 * Proxies of providers choose the certificate by the name of the server, which ioredis does not
 * send by itself.
 */
function tlsOf(url: string): Pick<RedisOptions, 'tls'> {
  const { protocol, hostname } = new URL(url);
  if (protocol !== 'rediss:') return {};
  return { tls: isIP(hostname.replace(/[[\]]/g, '')) ? {} : { servername: hostname } };
}

/**
 * `SlidingWindows.hit` of several calls in one atomic step in Redis, with the result of the
 * first one; for 0 calls, `SlidingWindows.peek`. A window is stored as text: the time of the
 * first call in the newest group, then for each group, oldest first, the time of its last call
 * and its number of calls. Times are in milliseconds. A time in the future was stored before
 * the clock of Redis was set back: it is replaced by the present time, so that a window ends in
 * time by the new clock.
 */
const slide = `
local max, window, span = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local calls, now = tonumber(ARGV[4]), tonumber(ARGV[5])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local first, ends, counts, total, isChanged = now, {}, {}, 0, false
local numbers = string.gmatch(redis.call('GET', KEYS[1]) or '', '%d+')
first = math.min(now, tonumber(numbers() or now))
for word in numbers do
  local stored, count = tonumber(word), tonumber(numbers())
  local last = math.min(now, stored)
  isChanged = isChanged or last < stored
  if last > now - window then
    ends[#ends + 1], counts[#counts + 1] = last, count
    total = total + count
  end
end

local remaining = math.max(0, max - total)
if remaining > 0 and calls > 0 then
  calls = math.min(calls, remaining)
  if #ends > 0 and now - first <= span then
    ends[#ends] = math.max(ends[#ends], now)
    counts[#counts] = counts[#counts] + calls
  else
    first = now
    ends[#ends + 1], counts[#counts + 1] = now, calls
  end
  isChanged = true
end
if isChanged then
  local text = { string.format('%.0f', first) }
  for i = 1, #ends do text[#text + 1] = string.format('%.0f %.0f', ends[i], counts[i]) end
  redis.call('SET', KEYS[1], table.concat(text, ' '), 'PX', window)
end
return { remaining, (ends[1] or now) + window - now }
`;
