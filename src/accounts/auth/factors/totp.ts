import { randomBytes } from 'node:crypto';
import { Secret, TOTP } from 'otpauth';

/** Bytes of a key: as many as the hash has (RFC 4226 §4). */
const keyBytes = 20;
/** The time of one code, in s (RFC 6238 §5.2). */
const period = 30;
/** The codes before and after the present one that are accepted, because clocks differ. */
const window = 1;
/** The settings of codes that every authenticator app computes. */
const settings = { algorithm: 'SHA1', digits: 6, period } as const;

/** A six-digit code; people type it in groups. */
const codePattern = /^\d{6}$/;

/** A new key of an authenticator app. */
export interface TotpKey {
  readonly key: Buffer;
  /** The key in base 32, for who types it. */
  readonly text: string;
  /** The address that a QR code has, which apps read: `otpauth://totp/…`. */
  readonly url: string;
}

/**
 * Creates the key of an authenticator app.
 * @param issuer the name of the tenant, which the app shows
 * @param account the address of the person, which the app shows beside it
 */
export function createTotpKey(issuer: string, account: string): TotpKey {
  const key = randomBytes(keyBytes);
  const totp = totpOf(key, { issuer: issuer.replaceAll(':', ' '), label: account });

  return { key, text: totp.secret.base32, url: totp.toString() };
}

/**
 * Returns the time step of a code (RFC 6238 §4.2): the number of 30 seconds since 1970;
 * undefined for a code that is not right now, nor one step before or after.
 * @param now in seconds since 1970
 */
export function stepOfCode(key: Buffer, code: string, now: number): number | undefined {
  if (!codePattern.test(code)) return undefined;
  const delta = totpOf(key).validate({ token: code, timestamp: now * 1_000, window });

  return delta === null ? undefined : Math.floor(now / period) + delta;
}

function totpOf(key: Buffer, labels: { issuer?: string; label?: string } = {}): TOTP {
  const buffer = Uint8Array.from(key).buffer;
  return new TOTP({ ...settings, ...labels, secret: new Secret({ buffer }) });
}
