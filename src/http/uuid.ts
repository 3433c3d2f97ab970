const canonical = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** Whether text is a UUID as PostgreSQL writes it, in lower case (RFC 9562 §4): one spelling, so one key in a cache. */
export function isUuid(text: unknown): text is string {
  return typeof text === 'string' && canonical.test(text);
}
