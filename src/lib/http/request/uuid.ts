const canonical = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/**
 * True if a value is a UUID in lower case, as PostgreSQL writes it (RFC 9562 §4). One spelling
 * makes one cache key.
 */
export function isUuid(text: unknown): text is string {
  return typeof text === 'string' && canonical.test(text);
}
