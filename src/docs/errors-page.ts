import { STATUS_CODES } from 'node:http';
import { type ProblemCode, problems } from '../errors.ts';
import { html, page } from './html.ts';

const meanings: Record<ProblemCode, string> = {
  validation_failed: 'One or more fields are missing or wrong. `errors` names each.',
  malformed_json: 'The body is not a JSON object in UTF-8.',
  invalid_request: 'Headers contradict each other.',
  duplicate: 'The code is taken, by a record that may be marked as deleted.',
  in_use: 'Other records refer to the record, so it stays.',
  unknown_record: 'The record to change or delete is not there.',
  unauthorized: 'Send an access token.',
  invalid_token: 'The token was changed, revoked, or is not for this service. Log in again.',
  token_expired: 'Refresh, and try again.',
  invalid_credentials: 'Address and password do not belong together, or the account is not active.',
  invalid_refresh_token: 'It was used already, has expired, or its session has ended. Log in again.',
  tenant_required: 'Without a token, `X-Tenant` must hold the guid of an active tenant.',
  tenant_inactive: 'The company is suspended.',
  forbidden: 'Your role lacks the permission that `WWW-Authenticate` names, or your scope is too small.',
  not_found: 'There is nothing at this path, or no record with this key, or the list is empty.',
  method_not_allowed: '`Allow` names the methods of this path.',
  gone: 'This way of calling has been switched off.',
  payload_too_large: 'Send less.',
  unsupported_media_type: 'Send `application/json` in UTF-8, not compressed.',
  rate_limited: 'Wait as many seconds as `Retry-After` says.',
  internal_error: 'Our fault. Tell us the `traceId`.',
  not_implemented: 'The service knows no such method.',
  unavailable: 'A part of the service is down. Try again after `Retry-After` seconds.',
  migration_pending: 'The data of this company is being upgraded. Try again after `Retry-After` seconds.',
  overloaded: 'Too much at once. Try again after `Retry-After` seconds.',
};

/** Every code that a problem can carry; the `type` of a problem points here. */
export function errorsPage(): string {
  const codes = Object.keys(problems) as ProblemCode[];
  const rows = codes.map(
    code =>
      html`<tr id="${code}"><td>${problems[code].status}</td><td><code>${code}</code></td><td>${withCode(meanings[code])}</td></tr>`,
  );
  // One line for each status, which leads to its first code.
  const first = new Map(codes.toReversed().map(code => [problems[code].status, code]));
  const contents = [...first].reverse().map(([status, code]) => [code, `${status} ${STATUS_CODES[status]}`] as const);
  const body = html`
<h1>Errors</h1>
<p class="lead">A problem has a status, a code that does not change, and a trace id that finds its cause in the log.</p>
<div class="table errors"><table><tr><th>Status</th><th>Code</th><th>What it means</th></tr>${rows}</table></div>`;
  return page({ path: '/docs/errors', title: 'Errors', contents, body });
}

/** Text in which `…` is code. */
function withCode(text: string) {
  return text.split('`').map((part, index) => (index % 2 ? html`<code>${part}</code>` : html`${part}`));
}
