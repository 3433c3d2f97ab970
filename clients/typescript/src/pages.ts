import type { paths } from './api.ts';
import { bodyOf } from './problem-error.ts';
import { writeQuery } from './query.ts';

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
  ? Omit<NonNullable<Query>, 'after'>
  : never;

interface ReadOptions {
  send: (request: Request) => Promise<Response>;
  baseUrl: string;
  path: string;
  query: object | undefined;
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
}: ReadOptions): AsyncGenerator<Item, void> {
  const first = `${path}?${writeQuery({ limit: defaultPage, ...query })}`;
  for (let next: string | undefined = first; next !== undefined; ) {
    const response: Response = await send(new Request(`${baseUrl}${next}`));
    yield* await bodyOf<Item[]>(response);
    next = /<([^>]+)>; *rel="next"/.exec(response.headers.get('Link') ?? '')?.[1];
  }
}
