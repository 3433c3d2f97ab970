import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import {
  contains,
  type IpNetwork,
  parseIpAddress,
  parseIpNetwork,
} from '../../lib/config/ip-address.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';

/** Somebody who may use the console. */
export interface Visitor {
  /** The name that the proxy gives; undefined for the operator who started the console. */
  readonly name: string | undefined;
  /** The session that the tokens of forms are bound to. */
  readonly session: string;
}

/** Decides who may use the console. */
export interface Entrance {
  /** The path that the browser opens first. That of a local console has a token, valid once. */
  readonly startPath: string;
  /**
   * Returns the host that the browser asked for. Undefined if the console does not have that
   * host, as with DNS rebinding, or if the request does not come from the proxy of a team.
   */
  hostOf(request: IncomingMessage): string | undefined;
  visitorOf(request: IncomingMessage): Visitor | undefined;
  /** Exchanges the token of the printed address for a cookie, once. */
  redeem(token: string): string | undefined;
}

const loopback = /^(127\.0\.0\.1|localhost|\[::1\])(:\d+)?$/;

/** Creates the entrance of the operator who started the console. */
export function createLocalEntrance(): Entrance {
  // Letters and digits: a terminal leaves a hyphen at the end out of a link.
  const token = randomBytes(24).toString('hex');
  const session = randomBytes(32).toString('base64url');
  // Cookies of one host are sent to all of its ports: another console has another name.
  const name = `console-${randomBytes(6).toString('hex')}`;
  let isRedeemed = false;

  return {
    startPath: `/start?token=${token}`,
    hostOf: ({ headers: { host = '' } }) => (loopback.test(host) ? host : undefined),
    visitorOf: ({ headers: { cookie = '' } }) => {
      const values = cookie.split('; ').filter(each => each.startsWith(`${name}=`));
      const isKnown = values.some(value => isEqual(value.slice(name.length + 1), session));
      return isKnown ? { name: undefined, session } : undefined;
    },
    redeem: given => {
      if (isRedeemed || !isEqual(given, token)) return undefined;
      isRedeemed = true;
      return `${name}=${session}; Path=/; HttpOnly; SameSite=Strict`;
    },
  };
}

const maxNameLength = 200;

/**
 * Creates the entrance of a team: a proxy, whose address is known, names the user of each
 * request.
 * @throws {OperatorError} when an address cannot be read
 */
export function createTeamEntrance(proxies: readonly string[], userHeader: string): Entrance {
  const networks = proxies.map(parseProxy);
  return {
    startPath: '/',
    hostOf: ({ socket: { remoteAddress = '' }, headers }) => {
      const address = parseIpAddress(remoteAddress);
      const isProxy = address !== undefined && networks.some(network => contains(network, address));
      return isProxy ? (single(headers['x-forwarded-host']) ?? headers.host) : undefined;
    },
    visitorOf: ({ headers }) => {
      const name = single(headers[userHeader]);
      return name === undefined ? undefined : { name, session: name };
    },
    redeem: () => undefined,
  };
}

/**
 * Returns the value of a header that occurs once and has no control characters; undefined
 * otherwise.
 */
function single(value: string | string[] | undefined): string | undefined {
  const isClear =
    typeof value === 'string' && value.length <= maxNameLength && /^[^,\p{Cc}]+$/u.test(value);
  return isClear ? value.trim() || undefined : undefined;
}

function parseProxy(text: string): IpNetwork {
  const network = parseIpNetwork(text);
  if (!network || network.bits === 0) {
    throw new OperatorError(
      `${text} is not the address of a proxy: give one such as 10.0.0.7 or 10.0.0.0/24`,
      {
        usage: true,
      },
    );
  }
  return network;
}

/** Compares secrets in a time that does not depend on their texts. */
export function isEqual(given: string, expected: string): boolean {
  const digest = (text: string): Buffer => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(given), digest(expected));
}
