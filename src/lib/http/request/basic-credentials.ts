/**
 * Returns the id and the secret of `Authorization: Basic` (RFC 7617); undefined for another
 * scheme, and for a text without a colon.
 */
export function basicCredentials(
  authorization: string,
): { readonly id: string; readonly secret: string } | undefined {
  const encoded = /^Basic +([A-Za-z0-9+/=]+) *$/i.exec(authorization)?.[1];
  const text = Buffer.from(encoded ?? '', 'base64').toString();
  const [, id, secret] = /^([^:]*):(.*)$/s.exec(text) ?? [];

  return id === undefined || secret === undefined ? undefined : { id, secret };
}
