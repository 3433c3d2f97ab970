import { isIP } from 'node:net';
import { Redis, type RedisOptions } from 'ioredis';
import { OperatorError } from '../../log/operator-error.ts';
import { within } from '../../runtime/within.ts';
import { createCallBatches } from './call-batches.ts';
import type { SharedWindows } from './shared-windows.ts';
import { groupSpan } from './sliding-window.ts';

const maxStartMs = 1_000;

const connection = {
  lazyConnect: true, // `started` connects
  connectionName: 'rate-limits',
  enableOfflineQueue: false, // a call without a connection fails at once instead of waiting for one
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: 0,
  connectTimeout: 1_000,
  socketTimeout: 2_000, // replaces a connection whose peer is gone without closing it
  retryStrategy: (attempt: number) => Math.min(50 * 2 ** attempt, 1_000) + Math.random() * 100,
};

/**
 * Creates the windows that all processes share in Redis. Each window has one key, so that any node of a cluster can
 * hold it. A key expires with its window.
 * @param now returns the time in milliseconds; by default the clock of Redis counts, which all processes share
 */
export function createRedisStore(url: string, now?: () => number): SharedWindows {
  const redis = new Redis(url, { ...connection, ...tlsOf(url) }) as Redis & {
    slide: (...args: (string | number)[]) => Promise<number[]>;
  };
  let isMissing = false; // its database: ioredis would go on in database 0
  redis.on('error', (error: Error & { command?: { name?: string } }) => {
    if (error.command?.name === 'select') isMissing = true;
    // Other errors are lost connections, which each call finds by itself.
  });
  redis.defineCommand('slide', { numberOfKeys: 1, lua: slide });
  const counts = createCallBatches(batches => {
    redis.stream?.cork();
    const results = batches.map(async ({ key, rate, calls }) => {
      const numbers = await redis.slide(key, rate.max, rate.windowMs, groupSpan(rate), calls, now?.() ?? '');
      const [remaining = 0, resetMs = 0] = numbers;
      return { remaining, resetMs };
    });
    redis.stream?.uncork();
    return results;
  });
  return {
    ...counts,
    started: async () => {
      await within(redis.connect(), maxStartMs).catch(() => {});
      if (!isMissing) return;
      redis.disconnect();
      throw new OperatorError(
        `REDIS_URL names database ${redis.options.db}, which this Redis does not have: leave it out, for database 0`,
      );
    },
    close: () => redis.disconnect(),
  };
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
 * and its number of calls. Times are in milliseconds. A time in the future was stored before the
 * clock of Redis was set back: it becomes now, and is stored as that, so that a window ends in its
 * own time by the new clock.
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
