/** The reasons why a token is refused. They are for the log, and are sent to nobody. */
export type TokenRefusal =
  | 'malformed'
  | 'algorithm'
  | 'type'
  | 'key'
  | 'signature'
  | 'issuer'
  | 'audience'
  | 'authorized_party'
  | 'expired'
  | 'not_yet_valid'
  | 'too_old'
  | 'nonce'
  | 'subject'
  | 'events'
  | 'token_id';

/** A token that is not the provider's, or not good now. */
export class TokenRefusedError extends Error {
  readonly reason: TokenRefusal;

  constructor(reason: TokenRefusal, cause?: unknown) {
    super(`the token of the provider is refused: ${reason}`, { cause });
    this.name = 'TokenRefusedError';
    this.reason = reason;
  }
}

/** The reasons why the keys of a provider cannot be had. They are for the log, too. */
export type ProviderFailure =
  | 'refused_address'
  | 'timeout'
  | 'tls'
  | 'no_connection'
  | 'redirect'
  | 'status'
  | 'too_large'
  | 'not_json'
  | 'issuer'
  | 'no_keys'
  | 'too_many_keys'
  | 'busy';

/** A provider that is away, slow, or answers what is no description or no keys. */
export class ProviderUnavailableError extends Error {
  readonly reason: ProviderFailure;

  constructor(reason: ProviderFailure, cause?: unknown) {
    super(`the keys of the provider cannot be fetched: ${reason}`, { cause });
    this.name = 'ProviderUnavailableError';
    this.reason = reason;
  }
}
