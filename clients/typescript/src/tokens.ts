import type { components } from './api.ts';

/** The response to a login or a refresh. */
export type LoginResponse = components['schemas']['LoginResponse'];

/**
 * What completes a login: a code of an authenticator app, a recovery code, or `toJSON()` of what
 * `navigator.credentials.get` has returned for `problem.passkey` of the refused login.
 */
export type SecondFactor =
  | { readonly code: string }
  | { readonly recoveryCode: string }
  | { readonly passkey: object };

/** The two tokens of a session. */
export type Tokens = Pick<LoginResponse, 'accessToken' | 'refreshToken'>;

/** Tokens, and which ones of their session they are. */
export interface SessionTokens extends Tokens {
  /**
   * Names the session in this browser; undefined for tokens that the application has stored.
   */
  readonly session?: string | undefined;
  /** The refreshes of the session before these tokens. */
  readonly number: number;
}

/** Returns the tokens of a response without what only this client knows of them. */
export function tokensOf({ accessToken, refreshToken }: Tokens): Tokens {
  return { accessToken, refreshToken };
}

/** True for tokens of the same session. */
export function isSameSession(one: SessionTokens, other: SessionTokens): boolean {
  return (
    one.refreshToken === other.refreshToken ||
    (one.session !== undefined && one.session === other.session)
  );
}

/** True for tokens that a later refresh of the same session has returned. */
export function isNewer(tokens: SessionTokens, than: SessionTokens): boolean {
  return (
    tokens.session !== undefined && tokens.session === than.session && tokens.number > than.number
  );
}

/** Returns `value` if it has the form of tokens of a session. */
export function asSessionTokens(value: unknown): SessionTokens | undefined {
  const { accessToken, refreshToken, session, number } = Object(value) as Record<string, unknown>;
  if (typeof accessToken !== 'string' || typeof refreshToken !== 'string') return undefined;

  return {
    accessToken,
    refreshToken,
    session: typeof session === 'string' ? session : undefined,
    number: typeof number === 'number' ? number : 0,
  };
}
