import type { Random } from '../simulation/random.ts';
import type { FaultInstallation } from './fault-installation.ts';
import type { FaultProxy } from './fault-proxy.ts';

/**
 * A fault: `begin` starts it, and `end` resolves when what it has broken works again, as far as
 * the outside can tell.
 */
export interface Fault {
  readonly name: string;
  /** The process or the proxy that fails. */
  readonly target: object;
  /** The duration of the fault, in ms. */
  readonly ms: number;
  readonly begin: () => void | Promise<void>;
  readonly end: () => void | Promise<void>;
}

/** Returns the next fault of a seeded plan; a quarter of them are two faults at a time. */
export function nextFault(random: Random, installation: FaultInstallation): Fault {
  const first = singleFault(random, installation);
  if (random.chance(0.75)) return first;
  const second = singleFault(random, installation);
  if (second.target === first.target) return first;
  return {
    name: `${first.name} and ${second.name}`,
    target: first.target,
    ms: Math.max(first.ms, second.ms),
    begin: async () => {
      await Promise.all([first.begin(), second.begin()]);
    },
    end: async () => {
      await Promise.all([first.end(), second.end()]);
    },
  };
}

function singleFault(random: Random, installation: FaultInstallation): Fault {
  const { servers, redis, secondProxy, services } = installation;
  const service = random.pick(services) as (typeof services)[number];
  const ms = random.chance(0.6) ? random.between(200, 3_000) : random.between(3_000, 14_000);
  const index = random.integer(0, 1);
  const isReset = random.chance(0.5);

  const network = (proxy: FaultProxy, name: string): Fault => {
    const end = (): void => proxy.heal(isReset);
    const kind = random.integer(0, 2);
    if (kind === 0) {
      return { name: `cut ${name}`, target: proxy, ms, begin: () => proxy.cut(), end };
    }
    if (kind === 1) {
      return { name: `silence ${name}`, target: proxy, ms, begin: () => proxy.silence(), end };
    }

    const delayMs = Math.round(random.between(20, 400));
    return {
      name: `delay ${name} by ${delayMs} ms`,
      target: proxy,
      ms,
      begin: () => proxy.delay(delayMs),
      end,
    };
  };

  const kind = random.integer(0, 9);
  if (kind <= 1) {
    return {
      name: `kill ${service.name}`,
      target: service,
      ms,
      begin: () => service.kill(),
      end: () => service.start(),
    };
  }

  if (kind <= 3) {
    return {
      name: `stop ${service.name}`,
      target: service,
      ms,
      begin: () => service.stop(),
      end: () => service.continue(),
    };
  }

  if (kind <= 5) {
    const server = servers[index] as (typeof servers)[number];
    const name = `crash of the ${index === 0 ? 'first' : 'second'} PostgreSQL server`;
    return {
      name,
      target: server,
      ms: Math.min(ms, 4_000),
      begin: () => server.crash(),
      end: () => server.start(),
    };
  }

  if (kind === 6 && redis) {
    return {
      name: 'crash of Redis',
      target: redis,
      ms,
      begin: () => redis.kill(),
      end: () => redis.start(),
    };
  }

  if (kind === 7 && service.redisProxy) {
    return network(service.redisProxy, `${service.name} – Redis`);
  }
  if (kind === 8) return network(secondProxy, 'all services – second PostgreSQL server');
  return network(service.controlProxy, `${service.name} – first PostgreSQL server`);
}
