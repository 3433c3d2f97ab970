import type { IncomingHttpHeaders } from 'node:http';

/**
 * Returns a function that makes a path of a response header, such as `Link`, an address for the
 * client of a request: the whole address if the request came to that of the service, else the
 * path as it is. Programs that follow such headers often take whole addresses only. The host of
 * another request may be anybody's text, so no address is made of it.
 * @param publicUrl under which clients reach the service
 */
export function publicAddresses(publicUrl: string) {
  const { host, origin, protocol } = new URL(publicUrl);
  const hosts = new Set([host, `${host}:${protocol === 'https:' ? 443 : 80}`]);

  return (path: string, { host: asked }: IncomingHttpHeaders): string =>
    asked !== undefined && hosts.has(asked.toLowerCase()) ? origin + path : path;
}
