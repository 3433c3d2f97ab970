import { isAbsolute } from 'node:path';
import { z } from 'zod';
import { type IpNetwork, parseIpNetwork } from './ip-address.ts';
import { normalPostgresUrl, PostgresUrlError } from './postgres-url.ts';
import { serverUrlFault } from './url-text.ts';

// The kinds of values that environment variables have: each turns a text into a value, or names
// the rule that the text breaks.

export const port = z
  .string()
  .regex(/^\d+$/, 'must be a port number')
  .transform(Number)
  .refine(n => n <= 65_535, 'must be a port number');

/** A whole number from 1 to 999,999. */
export const count = z
  .string()
  .regex(/^[1-9]\d{0,5}$/, 'must be a whole number above 0')
  .transform(Number);

/** A number of processes, or `auto` (see `processCount`). */
export const processes = z.string().transform((text, context): number | 'auto' => {
  if (text === 'auto') return 'auto';
  if (/^[1-9]\d?$/.test(text)) return Number(text);
  context.addIssue('must be a number of processes from 1 to 99, or auto for one per core');
  return z.NEVER;
});

/** @param schemes such as `redis://` */
const serverUrl = (...schemes: string[]) =>
  z.string().superRefine((text, context) => {
    const fault = serverUrlFault(text, schemes);
    if (fault) context.addIssue(fault);
  });

/** A URL of HTTP, without a slash at its end. */
export const httpUrl = serverUrl('http://', 'https://').transform(text => text.replace(/\/+$/, ''));

/**
 * A URL of HTTP to which links of the service lead: scheme, host and port. Its pages, the API
 * and its own links are at the root of a host.
 */
export const originUrl = httpUrl.superRefine((text, context) => {
  const { username, pathname, origin } = new URL(text);
  if (text.includes('?')) {
    context.addIssue('must have no ? in it: paths are added to it');
  } else if (username) {
    context.addIssue('must have no login in it: everybody sees it');
  } else if (pathname !== '/') {
    context.addIssue(
      `must have no path in it, such as ${pathname}: the pages and the API are at the root of a host, ` +
        `so give the service a host name or a port of its own, such as ${origin}`,
    );
  }
});

/** A URL of PostgreSQL, which is brought into one spelling. */
export const postgresUrl = z.string().transform((text, context) => {
  try {
    return normalPostgresUrl(text);
  } catch (error) {
    if (!(error instanceof PostgresUrlError)) throw error;
    context.addIssue(error.message);
    return z.NEVER;
  }
});

/** A URL of Redis. The scheme decides on TLS, so it is in small letters. */
export const redisUrl = serverUrl('redis://', 'rediss://')
  .superRefine((text, context) => {
    const { pathname, search, host } = new URL(text);
    if (!/^\/?\d{0,4}$/.test(pathname)) {
      context.addIssue('must have the number of a database after the host, such as /0');
    } else if (search) {
      context.addIssue('must have no ? in it: parameters are not supported');
    } else if (/^%2f/i.test(host)) {
      context.addIssue('names a Unix socket, which is not supported: give host and port');
    }
  })
  .transform(lowerScheme);

/** A URL of a mail server. */
export const smtpUrl = serverUrl('smtp://', 'smtps://').transform(lowerScheme);

function lowerScheme(text: string): string {
  return text.replace(/^[^:]*/, scheme => scheme.toLowerCase());
}

const placeholders = ['{action}', '{token}'];

/** The sender of mails: an address, or a name and an address in angle brackets. */
export const mailSender = z
  .string()
  .refine(
    text => /^([^<>]*<[^\s@<>]+@[^\s@<>]+>|[^\s@<>]+@[^\s@<>]+)$/.test(text),
    'must be an e-mail address, or a name and an address, such as Back office <no-reply@example.com>',
  );

/**
 * The address of an application's pages, which has `{action}`, `{token}` and optionally
 * `{tenant}` in it.
 */
export const pageAddress = z
  .string()
  .refine(
    text =>
      /^https?:\/\//.test(text) &&
      URL.canParse(text) &&
      placeholders.every(each => text.includes(each)),
    `must be a URL that contains ${placeholders.join(' and ')}, such as https://app.example.com/{action}#token={token}`,
  );

/** Returns the items of a list with commas. */
function itemsOf(text: string): string[] {
  return text
    .split(',')
    .map(item => item.trim())
    .filter(Boolean);
}

const secondsOf: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3_600 };

/** A number of requests in a time: `5/15m`. */
export const rate = z.string().transform((text, context) => {
  const [, max, n, unit = ''] = /^([1-9]\d{0,6})\/([1-9]\d{0,3})([smh])$/.exec(text) ?? [];
  const seconds = secondsOf[unit];
  if (max && n && seconds) return { max: Number(max), windowMs: Number(n) * seconds * 1_000 };

  context.addIssue('must be a number of requests and a time, such as 500/60s, 5/15m or 100/1h');
  return z.NEVER;
});

/**
 * Parses a key of 32 bytes, written as 64 hexadecimal digits or as base64; undefined for all
 * other text.
 */
export function parseMasterKey(text: string): Buffer | undefined {
  const key = /^[0-9a-f]{64}$/i.test(text) ? Buffer.from(text, 'hex') : Buffer.from(text, 'base64');
  return key.length === 32 ? key : undefined;
}

export const masterKey = z.string().transform((text, context) => {
  const key = parseMasterKey(text);
  if (key) return key;
  context.addIssue(
    'must be 32 bytes, as 64 hexadecimal digits or base64 (openssl rand -base64 32)',
  );
  return z.NEVER;
});

/** Peers that may name the address of their client. */
export interface TrustedPeers {
  readonly networks: readonly IpNetwork[];
  /** True if every peer on a Unix socket is trusted. */
  readonly unixSocket: boolean;
}

/** Trusted peers, and the place where they name the address of their client. */
export interface TrustedProxies extends TrustedPeers {
  /**
   * The place of that address in the header, counted from the right; undefined = it is the
   * rightmost address that is not trusted itself.
   */
  readonly hops: number | undefined;
  readonly header: 'x-forwarded-for' | 'forwarded';
}

/** Addresses, networks and the word `unix`, separated by commas. */
export const trustedPeers = z.string().transform((text, context): TrustedPeers => {
  const items = itemsOf(text);
  const networks = items.filter(item => item !== 'unix').map(parseIpNetwork);
  if (networks.every(network => network !== undefined)) {
    return { networks, unixSocket: items.includes('unix') };
  }
  context.addIssue('must be a comma-separated list of IP addresses, networks (10.0.0.0/8) or unix');
  return z.NEVER;
});

/** A number of proxies. */
export const hops = z
  .string()
  .regex(/^[1-9]\d?$/, 'must be the number of proxies on every way to the service, from 1 to 99')
  .transform(Number);

/** The name of the header in which proxies name their clients, in any case. */
export const forwardedHeader = z
  .string()
  .transform(text => text.toLowerCase())
  .pipe(z.enum(['x-forwarded-for', 'forwarded'], 'must be one of X-Forwarded-For, Forwarded'));

const msOf: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000 };

/** A duration such as 500ms, 5s or 2m, as milliseconds. */
export const duration = z.string().transform((text, context) => {
  const [, n, unit = ''] = /^(\d{1,6})(ms|s|m)$/.exec(text) ?? [];
  const ms = msOf[unit];
  if (n && ms) return Number(n) * ms;

  context.addIssue('must be a duration such as 500ms, 5s or 2m');
  return z.NEVER;
});

/** Web origins, separated by commas, as browsers send them in `Origin` (RFC 6454 §6.2). */
export const origins = z
  .string()
  .transform(itemsOf)
  .refine(
    items => items.every(isOrigin),
    'must be a comma-separated list of origins, such as https://app.example.com, without a path or *',
  );

function isOrigin(text: string): boolean {
  return /^https?:[^*]+$/.test(text) && URL.canParse(text) && new URL(text).origin === text;
}

/** The place where backups are stored. */
export type BackupLocation =
  | { readonly kind: 'folder'; readonly path: string }
  | { readonly kind: 's3'; readonly bucket: string; readonly prefix: string };

/** An absolute path, or `s3://bucket/prefix`. */
export const backupLocation = z.string().transform((text, context): BackupLocation => {
  const [, bucket, prefix = ''] =
    /^s3:\/\/([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:\/(.*))?$/.exec(text) ?? [];
  if (bucket) return { kind: 's3', bucket, prefix: prefix.replace(/^\/+|\/+$/g, '') };
  if (isAbsolute(text)) return { kind: 'folder', path: text };
  context.addIssue('must be the absolute path of a folder, or s3://bucket/prefix');
  return z.NEVER;
});

/** Recipients of age, separated by commas or white space: `age1…`. */
export const recipients = z
  .string()
  .transform(text => text.split(/[\s,]+/).filter(Boolean))
  .refine(
    items => items.every(item => /^age1[a-z0-9]{20,}$/.test(item)),
    'must be a comma-separated list of recipients of age, such as age1…: bin/backoffice backup keygen makes one',
  );

/**
 * The archives that are kept: all archives of the last time span, then the newest of each
 * period.
 */
export interface Retention {
  /** The time for which every archive is kept; `Infinity`: for ever. */
  readonly allMs: number;
  readonly hours: number;
  readonly days: number;
  readonly weeks: number;
  readonly months: number;
}

const periods: Readonly<Record<string, Exclude<keyof Retention, 'allMs'>>> = {
  h: 'hours',
  d: 'days',
  w: 'weeks',
  m: 'months',
};
const hoursOf: Readonly<Record<string, number>> = { h: 1, d: 24, w: 7 * 24 };

/**
 * A time for which every archive is kept, and numbers of periods: `all:6h,48h,14d,8w,12m`; or
 * `all`.
 */
export const retention = z.string().transform((text, context): Retention => {
  const kept = { allMs: 0, hours: 0, days: 0, weeks: 0, months: 0 };

  const areRight = itemsOf(text).map(item => {
    const [, all, number, unit = ''] = /^(?:(all)|(?:all:)?(\d{1,4})([hdwm]))$/.exec(item) ?? [];
    const isAll = item.startsWith('all:');
    const [hours, period] = [hoursOf[unit], periods[unit]];
    if (all) {
      kept.allMs = Number.POSITIVE_INFINITY;
    } else if (isAll && hours) {
      kept.allMs = Number(number) * hours * 3_600_000;
    } else if (period && !isAll) {
      kept[period] = Number(number);
    } else {
      return false;
    }
    return true;
  });
  if (areRight.every(Boolean) && Object.values(kept).some(count => count > 0)) return kept;

  context.addIssue(
    'must be a time for which all are kept, and numbers of hours, days, weeks and months, such as ' +
      'all:6h,48h,14d,8w,12m; or all',
  );
  return z.NEVER;
});
