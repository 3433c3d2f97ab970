import { z } from 'zod';
import { type ProblemCode, problems } from '../errors.ts';
import { requiredPermission, type TenantRoute } from '../tenancy/define-route.ts';

/** Every status that a problem of a documented route can have. */
export const problemStatuses = [400, 401, 403, 404, 409, 410, 412, 413, 415, 422, 429, 500, 503] as const;
export type ProblemStatus = (typeof problemStatuses)[number];

/** The codes with which a route can respond with a status, in the order of `problems`. */
export function codesOf(status: ProblemStatus, route: TenantRoute): ProblemCode[] {
  const codes = new Set<ProblemCode>([...general, ...ofAccess(route), ...ofInput(route), ...(route.problems ?? [])]);
  const all = Object.keys(problems) as ProblemCode[];
  return all.filter(code => codes.has(code) && problems[code].status === status);
}

/** Of every route: `Prefer: handling=strict` refuses unknown parameters of each. */
const general: ProblemCode[] = [
  ...(['validation_failed', 'invalid_request', 'rate_limited', 'internal_error'] as const),
  ...(['unavailable', 'migration_pending', 'overloaded'] as const),
];

function ofAccess(route: TenantRoute): ProblemCode[] {
  const { access } = route;
  if (access === 'anonymous') return ['tenant_required', 'tenant_inactive'];
  if (access === 'client') return ['unauthorized', 'tenant_inactive', 'gone'];
  return [
    ...(['unauthorized', 'invalid_token', 'token_expired', 'tenant_required', 'tenant_inactive', 'gone'] as const),
    ...(requiredPermission(route) ? (['forbidden'] as const) : []),
  ];
}

function ofInput(route: TenantRoute): ProblemCode[] {
  const { body, upload, path, response, cache, query, takesIfMatch, takesIdempotencyKey } = route;
  const codes: ProblemCode[] = [];
  if (body) codes.push('malformed_json');
  if (body || upload) codes.push('payload_too_large', 'unsupported_media_type');
  if (takesIfMatch) codes.push('precondition_failed');
  if (takesIdempotencyKey) codes.push('idempotency_in_progress', 'idempotency_key_reused');
  // A complete list of reference data responds with 404 when it is empty. Other lists are then `[]`.
  const isCompleteList = response instanceof z.ZodArray && cache === 'revalidate' && query?.shape.limit === undefined;
  const isMissing = path.includes(':') && !route.problems?.includes('unknown_record');
  if (isCompleteList || isMissing) codes.push('not_found');
  return codes;
}
