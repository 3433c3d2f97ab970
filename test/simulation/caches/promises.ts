import { Problem } from '../../../src/errors.ts';
import type { CachedService, Reply } from './cached-service.ts';
import type { ModelTenant, ModelUser } from './installation-model.ts';

/** A change of another process, or of a row of the control database, shows after this time, in ms. */
const feedMs = 1_000;
/** A change that nobody announced shows after this time: a minute, by a clock that may be slow. */
const unannouncedMs = 60_000 * 1.006;
/** A feed that has stayed on an earlier primary delivers nothing for at most this time. */
const detachedMs = 15_000;

interface Exchange {
  readonly service: CachedService;
  readonly arrivedAt: number;
  /** When the change feed was left on an earlier primary, if it still was there at the arrival. */
  readonly detachedAt: number | undefined;
  readonly tenant: ModelTenant;
  readonly resource: string;
  /** Undefined for a request without token. */
  readonly user: ModelUser | undefined;
}

/**
 * Checks a reply against the promises of the documentation. @returns the broken promise; undefined when all are kept
 */
export function checkReply(exchange: Exchange, reply: Reply): string | undefined {
  const { service, tenant, resource, user } = exchange;
  if (reply.tenant !== tenant.guid || reply.resource !== resource)
    return `${reply.resource} of tenant ${reply.tenant} was returned instead of ${resource} of ${tenant.guid}`;
  const from = knownUntil(exchange);
  if (!tenant.isActive.hadSince(from, isTrue)) return 'a request of a suspended tenant was served';
  if (user) {
    if (!user.hasSession.hadSince(from, isTrue)) return 'a token of a revoked session was accepted';
    if (user.logout?.by === service.process.name && user.logout.at <= exchange.arrivedAt)
      return 'the process that ended a session accepted its token';
    if (!user.isEnabled.hadSince(from, isTrue)) return 'a token of a disabled user was accepted';
    if (!user.hasPermission.hadSince(from, isTrue)) return 'a caller without the permission was served';
  }
  const minVersion = requiredVersion(exchange, from);
  if (reply.version < minVersion) {
    const commit = tenant.history.commits(resource)[minVersion - 1];
    const age = (exchange.arrivedAt - (commit?.at ?? 0)).toFixed(0);
    return `version ${reply.version} was returned ${age} ms after version ${minVersion}, which ${commit?.by} committed`;
  }
  return undefined;
}

/** Checks a refusal: there must be a reason for it. @returns the broken promise */
export function checkRefusal(exchange: Exchange, error: unknown): string | undefined {
  if (!(error instanceof Problem) || error.status >= 500) return undefined;
  const { tenant, user } = exchange;
  const from = knownUntil(exchange);
  const hasReason =
    tenant.isActive.hadSince(from, isFalse) ||
    (user !== undefined &&
      (user.hasSession.hadSince(from, isFalse) ||
        user.isEnabled.hadSince(from, isFalse) ||
        user.hasPermission.hadSince(from, isFalse)));
  return hasReason ? undefined : `a request was refused without a reason: ${error.code}`;
}

/** A request may see the control database as it was at this time, or later. */
function knownUntil({ arrivedAt, detachedAt }: Exchange): number {
  return detachedAt !== undefined && arrivedAt < detachedAt + detachedMs
    ? Math.min(arrivedAt - feedMs, detachedAt)
    : arrivedAt - feedMs;
}

/** The number of commits that a response must contain. */
function requiredVersion({ service, arrivedAt, tenant, resource }: Exchange, from: number): number {
  const commits = tenant.history.commits(resource);
  for (let index = commits.length - 1; index >= 0; index--) {
    const { at, by } = commits[index] as (typeof commits)[number];
    const limit =
      by === service.process.name
        ? arrivedAt
        : by === 'outside'
          ? Math.max(arrivedAt - unannouncedMs, tenant.refreshedAt <= from ? tenant.refreshedAt : 0)
          : from;
    if (at <= limit) return index + 1;
  }
  return 0;
}

const isTrue = (value: boolean): boolean => value;
const isFalse = (value: boolean): boolean => !value;
