import { STATUS_CODES } from 'node:http';
import { html } from '../../lib/html/html.ts';
import { type ProblemCode, problemCodes, problems } from '../../lib/problems.ts';
import { renderInline } from './markdown.ts';
import { type PageChain, page, type Site } from './page.ts';

/** The meaning of each code for a client, and how to respond to it, in Markdown. */
export const meanings: Record<ProblemCode, string> = {
  validation_failed:
    'One or more fields are missing or invalid. `errors` names each field, and the member of a ' +
    'list by its place (`EntityIds[1]`); `errorCodes` has a code for each text. All errors of a ' +
    'request are in one response, at most 100 of its contract.',
  malformed_json: 'The body is not a JSON object in UTF-8.',
  invalid_request:
    'The request cannot be understood or served as it was sent: it has more than one ' +
    '`Authorization` header, a condition such as `If-Match` without an ETag, or an ' +
    '`Idempotency-Key` that its endpoint does not take, for instance. `detail` says what is wrong.',
  duplicate:
    'Another record has the code in the field that `errors` names. If that record is marked ' +
    'as deleted, `undelete` brings it back.',
  in_use:
    'The record cannot be deleted, because other records refer to it. `references` has the ' +
    'resources and the numbers of those that you may read.',
  wrong_state:
    'The state of the record does not allow this, whoever asks: a built-in role, an invitation ' +
    'that was accepted, your own management of users. `detail` says which.',
  limit_reached:
    'The tenant has as many records of this kind, or as much text in them, as [it may ' +
    'have](/docs/guide/limits).',
  unknown_record: 'The record to change or delete does not exist.',
  unauthorized: 'The request has no access token. Send one.',
  invalid_token:
    'The access token was altered, was revoked, or was not issued by this service. Log in again. ' +
    'A [program](/docs/guide/programs) needs another key, or calls from another network than its own.',
  token_expired:
    'The access token has expired. Exchange the refresh token, then repeat the request.',
  invalid_credentials: 'The e-mail address or the password is wrong, or the account is not active.',
  second_factor_required:
    'The password is right, and the account has a second factor. Send `challenge` with a code or a passkey to ' +
    '`/api/v1/auth/login/verify` within five minutes; `methods` names what it takes.',
  invalid_code:
    'The code is wrong, was used before, or its app is not the one of the account; or ten codes ' +
    'were wrong in 24 hours, and only recovery codes are accepted for the rest of them.',
  invalid_passkey:
    'The passkey is not one of the account, its page is none of the tenant, its challenge has ended ' +
    'or was used, or a copy of it has signed. Begin again with new options.',
  invalid_id_token:
    'The ID token is not one of a provider of the tenant, is older than ten minutes, has no nonce, ' +
    'or was used before; or nobody here has the account that it names. `detail` says what to do if ' +
    'an account has its address. Sign in at the provider again; the operator finds the reason in the log.',
  invalid_challenge:
    'The challenge or the setup token has ended: after five minutes, five codes, or a new password. ' +
    'Log in again.',
  invalid_refresh_token:
    'The refresh token was used before or has expired, or its session has ended. Log in again.',
  tenant_required:
    'A request without a token needs the guid or the slug of an active tenant in `X-Tenant`.',
  tenant_inactive: 'The tenant is suspended or deleted.',
  verification_required:
    'This needs a proof of your password of the last five minutes. Send the password to ' +
    '`/api/v1/auth/verify`, then repeat the request.',
  second_factor_setup_required:
    'The password is right, but your role requires a second factor. Send `setupToken` to ' +
    '`/api/v1/auth/login/setup`; without one, `detail` says what to do first.',
  origin_not_allowed:
    'A browser asked, in a preflight (CORS), whether a page of this origin may call the service. Ask ' +
    'the operator to list the origin.',
  forbidden:
    'Your role lacks the permission that `WWW-Authenticate` names, or the endpoint needs ' +
    'the scope `All`.',
  not_found: 'The path does not exist, no record has this key, or the list is empty.',
  method_not_allowed:
    'The path does not support this method. `Allow` names the methods that it supports.',
  request_timeout:
    'The head of a request must arrive within 5 s, the whole request within 15 s. Send it again.',
  idempotency_in_progress:
    'A request with the same `Idempotency-Key` is still running. Repeat it after ' +
    '`Retry-After` seconds.',
  gone: 'Legacy tokens are switched off for this tenant. Log in instead.',
  cursor_expired:
    'Changes after this cursor were removed, or the data of the tenant were restored. ' +
    '[Copy the records again](/docs/guide/events), then continue with a cursor from `after=now`.',
  precondition_failed:
    'The record is not the one that `If-Match` names, or exists despite `If-None-Match`. Read it ' +
    'again, and repeat the change on what it is now.',
  payload_too_large: 'The body is too large. Send less.',
  unsupported_media_type:
    'The body must have the media type that `detail` names, such as `application/json`, ' +
    'in UTF-8, not compressed.',
  idempotency_key_reused:
    'The `Idempotency-Key` was used for another path or body within 24 hours. Use a new one.',
  rate_limited: 'Too many requests. Wait the number of seconds in `Retry-After`.',
  headers_too_large: 'A request has at most 16 KiB of headers, and at most 100. Send less.',
  internal_error: 'The service has a fault. Report the `traceId` to its operator.',
  not_implemented: 'The service does not support this method anywhere.',
  unavailable: 'A part of the service is down. Repeat the request after `Retry-After` seconds.',
  migration_pending:
    "The tenant's database, or the service, is being upgraded. Repeat the request after `Retry-After` " +
    'seconds.',
  overloaded: 'The service is too busy. Repeat the request after `Retry-After` seconds.',
};

/** A table of every problem code. The `type` of a problem links to the row of its code. */
export function errorsPage(chain: PageChain, site: Site): string {
  const rows = problemCodes.map(code => {
    const cells = html`<td>${problems[code].status}</td><td><code>${code}</code></td>`;
    return html`<tr id="${code}">${cells}<td>${renderInline(meanings[code])}</td></tr>`;
  });
  const sections = [...Map.groupBy(problemCodes, code => problems[code].status)].map(
    ([status, [first = '']]) => [first, `${status} ${STATUS_CODES[status]}`] as const,
  );
  const body = html`
<h1>Errors</h1>
<p>Every error response has a status, a code that never changes its meaning,
and a trace id by which an operator finds the cause in the log.</p>
<div class="table errors"><table><tr><th>Status</th><th>Code</th><th>Meaning</th></tr>${rows}</table></div>`;

  return page({ site, path: '/docs/errors', title: 'Errors', chain, sections, body });
}
