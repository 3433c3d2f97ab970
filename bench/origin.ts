const bodies = new Map<string, Buffer>();

/**
 * Fetches a response body from the server at `ORIGIN` and stores it.
 * @returns undefined unless the status is 2xx
 */
export async function fetchBody(path: string): Promise<Buffer | undefined> {
  const response = await fetch(`${process.env.ORIGIN}${path}`);
  if (!response.ok) return undefined;
  const bytes = Buffer.from(await response.arrayBuffer());
  bodies.set(path, bytes);
  return bytes;
}

/** Returns the stored body of a path. */
export function fetchedBody(path: string): Buffer | undefined {
  return bodies.get(path);
}

/** The only ETag of bare-http and bare-koa; a request with it in `If-None-Match` gets 304. */
export const etag = '"bench"';
