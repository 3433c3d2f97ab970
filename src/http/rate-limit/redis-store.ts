import { Redis } from 'ioredis';
import { groupSpan, type Rate, type RateLimitResult } from './sliding-window.ts';

/** The windows of all processes together, in Redis. */
export interface RedisStore {
  /** Counts a call, unless it is one too many. @throws when Redis has not done it within 80 ms, for whatever reason */
  hit(key: string, rate: Rate): Promise<RateLimitResult>;
  /** Ends when there is a connection, when the first attempt has failed, or after a second. */
  started(): Promise<void>;
  close(): void;
}

// A request asks twice, for the limit of all requests and for that of its route, and waits 160 ms at the worst. A request
// from IPv6 asks for three networks each time: 480 ms, until the breaker opens after the third failure.
const maxReplyMs = 80;

const maxStartMs = 1_000;

const connection = {
  lazyConnect: true, // `started` connects
  connectionName: 'rate-limits',
  enableOfflineQueue: false, // without a connection a call fails at once, rather than when there is one
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  connectTimeout: 1_000,
  socketTimeout: 2_000, // a connection that went dead without a word is made anew
  retryStrategy: (attempt: number) => Math.min(50 * 2 ** attempt, 1_000) + Math.random() * 100,
};

/**
 * Keeps each window under one key, so that any node of a cluster can hold it, for as long as it says something.
 * @param now unix time in milliseconds; Redis's own clock, one for all processes, unless given
 */
export function createRedisStore(url: string, now?: () => number): RedisStore {
  const redis = new Redis(url, connection) as Redis & { slide: (...args: (string | number)[]) => Promise<number[]> };
  redis.on('error', () => {}); // tells of lost connections; every call that needs one says so itself
  redis.defineCommand('slide', { numberOfKeys: 1, lua: slide });
  /** By key, what is asked at the end of this turn of the event loop. */
  let asking = new Map<string, Asking>();

  /** Requests that arrived together ask together: one call for each client, all of them in one system call. */
  const ask = (): void => {
    const asked = asking;
    asking = new Map();
    redis.stream?.cork();
    for (const [key, { rate, calls, answer }] of asked) {
      const numbers = redis.slide(key, rate.max, rate.windowMs, groupSpan(rate), calls, now?.() ?? '');
      within(numbers, maxReplyMs).then(([remaining = 0, resetMs = 0]) => {
        answer.resolve({ remaining, resetMs });
      }, answer.reject);
    }
    redis.stream?.uncork();
  };
  return {
    hit: async (key, rate) => {
      if (asking.size === 0) setImmediate(ask);
      const mine = asking.get(key) ?? { rate, calls: 0, answer: Promise.withResolvers<RateLimitResult>() };
      asking.set(key, mine);
      const before = mine.calls++;
      const { remaining, resetMs } = await mine.answer.promise;
      return { remaining: Math.max(0, remaining - before), resetMs };
    },
    started: () => within(redis.connect(), maxStartMs).catch(() => {}),
    close: () => redis.disconnect(),
  };
}

interface Asking {
  readonly rate: Rate;
  /** Of one client, in this turn. */
  calls: number;
  readonly answer: PromiseWithResolvers<RateLimitResult>;
}

/**
 * `SlidingWindows.hit`, done in Redis in one step for several calls: as many are counted as may be. A window is kept as text: the beginning of the newest group, then the
 * end and the count of each, oldest first. Times are in milliseconds.
 */
const slide = `
local max, window, span = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local calls, now = tonumber(ARGV[4]), tonumber(ARGV[5])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local first, ends, counts, total = now, {}, {}, 0
local numbers = string.gmatch(redis.call('GET', KEYS[1]) or '', '%d+')
first = tonumber(numbers() or now)
for word in numbers do
  local last, count = tonumber(word), tonumber(numbers())
  if last > now - window then
    ends[#ends + 1], counts[#counts + 1] = last, count
    total = total + count
  end
end

local remaining = math.max(0, max - total)
if remaining > 0 then
  calls = math.min(calls, remaining)
  if #ends > 0 and now - first <= span then
    ends[#ends] = math.max(ends[#ends], now)
    counts[#counts] = counts[#counts] + calls
  else
    first = now
    ends[#ends + 1], counts[#counts + 1] = now, calls
  end
  local text = { string.format('%.0f', first) }
  for i = 1, #ends do text[#text + 1] = string.format('%.0f %.0f', ends[i], counts[i]) end
  redis.call('SET', KEYS[1], table.concat(text, ' '), 'PX', window)
end
return { remaining, ends[1] + window - now }
`;

/**
 * Waits no longer than that. Before it gives up it lets what has already arrived be read, so that a pause of our own
 * process is not taken for one of Redis.
 */
function within<T>(answer: Promise<T>, ms: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => setImmediate(reject, new Error(`no answer within ${ms} ms`)), ms);
    answer.then(
      value => {
        clearTimeout(timer);
        resolve(value);
      },
      error => {
        clearTimeout(timer);
        reject(error);
      },
    );
  });
}
