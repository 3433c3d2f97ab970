import { keysOf } from './narrow.ts';
import type { FieldErrorCode, FieldErrorParameters, FieldErrors } from './runtime/field-error.ts';

/**
 * All problems that a client can receive. A code is stable, because it is part of the API; a
 * title may be reworded. `http/problem-details.ts` renders all of them as
 * `application/problem+json` (RFC 9457).
 */
export const problems = {
  validation_failed: { status: 400, title: 'Some fields are not valid' },
  malformed_json: { status: 400, title: 'The body is not valid JSON' },
  invalid_request: { status: 400, title: 'The request is not well-formed' },
  duplicate: { status: 400, title: 'A record with this key exists already' },
  in_use: { status: 400, title: 'Other records refer to this record' },
  wrong_state: { status: 400, title: 'The state of the record does not allow this' },
  limit_reached: { status: 400, title: 'The tenant has no room for more of these records' },
  unknown_record: { status: 400, title: 'There is no such record' },
  unauthorized: { status: 401, title: 'An access token is needed' },
  invalid_token: { status: 401, title: 'The access token is not valid' },
  token_expired: { status: 401, title: 'The access token has expired' },
  invalid_credentials: { status: 401, title: 'The e-mail address or the password is not right' },
  second_factor_required: { status: 401, title: 'The login needs a second factor' },
  invalid_code: { status: 401, title: 'The code of the second factor is not accepted' },
  invalid_passkey: { status: 401, title: 'The passkey is not accepted' },
  invalid_id_token: { status: 401, title: 'The sign-in by the provider is not accepted' },
  invalid_challenge: { status: 401, title: 'The login has ended: begin it again' },
  invalid_refresh_token: { status: 401, title: 'The refresh token is not valid' },
  tenant_required: { status: 403, title: 'The X-Tenant header must name an active tenant' },
  tenant_inactive: { status: 403, title: 'This tenant is not active' },
  verification_required: { status: 403, title: 'The password must be proved again first' },
  second_factor_setup_required: {
    status: 403,
    title: 'The role requires a second factor, which the account does not have yet',
  },
  origin_not_allowed: { status: 403, title: 'Pages of this origin may not call the service' },
  forbidden: { status: 403, title: 'A permission is missing' },
  not_found: { status: 404, title: 'Nothing was found here' },
  method_not_allowed: { status: 405, title: 'This path does not answer this method' },
  request_timeout: { status: 408, title: 'The request did not arrive in time' },
  idempotency_in_progress: {
    status: 409,
    title: 'A request with this idempotency key is still running',
  },
  gone: { status: 410, title: 'This is no longer offered' },
  cursor_expired: {
    status: 410,
    title: 'The feed of changes no longer has what follows this cursor',
  },
  precondition_failed: { status: 412, title: 'The record has changed' },
  payload_too_large: { status: 413, title: 'The body is too large' },
  unsupported_media_type: {
    status: 415,
    title: 'The endpoint does not take this media type or encoding of a body',
  },
  idempotency_key_reused: { status: 422, title: 'This idempotency key belongs to another request' },
  rate_limited: { status: 429, title: 'Too many requests' },
  headers_too_large: { status: 431, title: 'The headers are too large' },
  internal_error: { status: 500, title: 'Something went wrong on our side' },
  not_implemented: { status: 501, title: 'This method is not supported' },
  unavailable: { status: 503, title: 'The service cannot answer at the moment' },
  migration_pending: { status: 503, title: 'The data of this tenant is being upgraded' },
  overloaded: { status: 503, title: 'The service is too busy at the moment' },
} as const satisfies Record<string, { status: number; title: string }>;

export type ProblemCode = keyof typeof problems;

/** All codes, in the order of their statuses. */
export const problemCodes = keysOf(problems);

/**
 * The reason why a request got a 401. It is for the operator: the response has only the code.
 */
export type UnauthorizedReason =
  | 'no_token'
  | 'malformed'
  | 'tenant'
  | 'header'
  | 'key'
  | 'signature'
  | 'issuer'
  | 'audience'
  | 'claims'
  | 'not_yet_valid'
  | 'expired'
  | 'session'
  | 'user'
  | 'second_factor'
  | 'sign_in_rule'
  | 'id_token'
  | 'legacy_token'
  | 'program_key'
  | 'network'
  | 'reused'
  | 'client';

/** The number of records of a resource that refer to a record. */
export interface ReferenceCount {
  readonly resource: string;
  readonly count: number;
}

/** The members that a problem of a login has, beside those of every problem. */
export interface ProblemMembers {
  /** The text that completes the login, in the body of `login/verify`. */
  readonly challenge?: string;
  /** The ways in which the login can be completed. */
  readonly methods?: readonly string[];
  /** The options with which a browser asks for a passkey (WebAuthn). */
  readonly passkey?: object;
  /** The text that sets up a second factor, in the body of `login/setup`. */
  readonly setupToken?: string;
}

interface ProblemOptions {
  detail?: string;
  errors?: FieldErrors;
  /** The records that refer to the one of the request, as far as the caller may read them. */
  references?: readonly ReferenceCount[];
  /** Further members of the problem document, which its code defines. */
  members?: ProblemMembers;
  headers?: Record<string, string>;
  /**
   * False if the client must not simply repeat the request. A 503 then has no `Retry-After`.
   */
  isRepeatable?: boolean;
  /** Logged and counted, never sent. */
  reason?: UnauthorizedReason;
  cause?: unknown;
}

/**
 * An error that becomes an error response. `detail`, `errors` and `references` are sent to the
 * client, `cause` is only logged. It has no stack trace: the trace would not help, and taking it
 * costs more than the rest of a rejected request.
 */
export class Problem extends Error {
  readonly code: ProblemCode;
  readonly status: number;
  readonly detail: string | undefined;
  readonly errors: FieldErrors | undefined;
  readonly references: readonly ReferenceCount[] | undefined;
  readonly members: ProblemMembers | undefined;
  readonly headers: Record<string, string>;
  readonly reason: UnauthorizedReason | undefined;

  constructor(
    code: ProblemCode,
    {
      detail,
      errors,
      references,
      members,
      headers = {},
      isRepeatable = true,
      reason,
      cause,
    }: ProblemOptions = {},
  ) {
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    super(code, { cause });
    Error.stackTraceLimit = stackTraceLimit;
    this.name = 'Problem';
    this.code = code;
    this.status = problems[code].status;
    this.detail = detail;
    this.errors = errors;
    this.references = references;
    this.members = members;
    this.reason = reason;
    this.headers =
      this.status === 503 && isRepeatable ? { 'Retry-After': '2', ...headers } : headers;
  }
}

/**
 * Creates an error response: `throw problem('unknown_record')`. All error responses are created
 * here.
 */
export function problem(code: ProblemCode, options?: ProblemOptions): Problem {
  return new Problem(code, options);
}

/** The problem of a body that is refused because of one of its fields. */
export function fieldProblem(
  field: string,
  message: string,
  code: FieldErrorCode,
  parameters: FieldErrorParameters = {},
): Problem {
  return problem('validation_failed', { errors: { [field]: [{ message, code, ...parameters }] } });
}

/** True for a problem with one of the codes. */
export function hasCode(error: unknown, ...codes: ProblemCode[]): boolean {
  return error instanceof Problem && codes.includes(error.code);
}

export const outcomeUnknownDetail =
  'The change may have been made: its confirmation was lost. Read the data before you send ' +
  'the change again.';

/**
 * 503 for a change whose commit was sent and not confirmed: sent again, the change could be
 * made twice.
 */
export function outcomeUnknown(cause: unknown): Problem {
  return problem('unavailable', { detail: outcomeUnknownDetail, isRepeatable: false, cause });
}

/** True for the problem that `outcomeUnknown` returns. */
export function isOutcomeUnknown(error: unknown): boolean {
  return error instanceof Problem && error.detail === outcomeUnknownDetail;
}

/**
 * Returns the errors of fields that a check throws; none if it throws nothing.
 * @throws {Problem} one that names no field
 */
export async function thrownErrors(check: () => Promise<unknown>): Promise<FieldErrors> {
  try {
    await check();
  } catch (error) {
    if (error instanceof Problem && error.errors) return error.errors;
    throw error;
  }
  return {};
}
