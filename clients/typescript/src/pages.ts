import type { paths } from './api.ts';
import { bodyOf } from './problem-error.ts';
import { type WithConditions, writeQuery } from './query.ts';
import type { SendUntil } from './retries.ts';

type ResponseOf<Path extends keyof paths> = paths[Path] extends {
  get: { responses: { 200: { content: { 'application/json': infer Body } } } };
}
  ? Body
  : never;

/** The path of a list. */
export type ListPath = {
  [Path in keyof paths]: ResponseOf<Path> extends readonly unknown[] ? Path : never;
}[keyof paths];
export type ListRecord<Path extends ListPath> =
  ResponseOf<Path> extends readonly (infer Item)[] ? Item : never;
/** Sort, filters, search and `limit`, the size of a page. */
export type ListQuery<Path extends ListPath> = paths[Path] extends {
  get: { parameters: { query?: infer Query } };
}
  ? WithConditions<Omit<NonNullable<Query>, 'after'>>
  : never;

interface ReadOptions {
  send: SendUntil;
  baseUrl: string;
  path: string;
  query: object | undefined;
  signal?: AbortSignal | undefined;
  /** Called with the place in the feed after each page of changes. */
  onCursor?: (cursor: string) => void;
}

const defaultPage = 200;

/**
 * Yields the records of all pages of a list.
 * @throws {ProblemError} when the service refuses a page
 */
export async function* readPages<Item>({
  send,
  baseUrl,
  path,
  query,
  signal,
  onCursor,
}: ReadOptions): AsyncGenerator<Item, void> {
  const first = `${path}?${writeQuery({ limit: defaultPage, ...query })}`;
  for (let next: string | undefined = first; next !== undefined; ) {
    const request = new Request(`${baseUrl}${next}`, signal && { signal });
    const response: Response = await send(request, signal);
    yield* await bodyOf<Item[]>(response);

    const cursor = response.headers.get('Next-Cursor');
    if (cursor !== null) onCursor?.(cursor);
    next = nextPath(response, baseUrl);
  }
}

/**
 * Returns the path of the next page with its query. `Link` has it alone or as a whole address,
 * whose origin does not count: the token is sent to the service of `baseUrl` only.
 */
function nextPath({ headers }: Response, baseUrl: string): string | undefined {
  const link = /<([^>]+)>; *rel="next"/.exec(headers.get('Link') ?? '')?.[1];
  if (link === undefined) return undefined;

  const { pathname, search } = new URL(link, baseUrl);
  return pathname + search;
}
