import {
  type Change,
  type ChangeInclude,
  type StatusListener,
  type StreamConnection,
  streamChanges,
  untilPassed,
} from './change-stream.ts';
import { gatherChanges } from './gather-changes.ts';
import { bodyOf } from './problem-error.ts';
import { writeQuery } from './query.ts';
import type { SharedChanges } from './shared-changes.ts';

export interface ChangesQuery {
  /**
   * The `Id` of a change, or `now`. Without it, `changes` begins with the oldest change,
   * `followChanges` now.
   */
  after?: string | undefined;
  /** Names of resources, separated by commas; all by default. */
  resource?: string | undefined;
  /** Adds the record, or its tag, to each change. */
  include?: ChangeInclude | undefined;
}

/** The changes to follow, and the way in which they come. */
export interface FollowQuery extends ChangesQuery {
  /** Yields lists: a change with those that come in so many ms after it. */
  gather?: number | undefined;
  /**
   * Called with `open` when changes begin to come as they happen, and with `waiting`, and the
   * cause, before each wait: the service is away, or the user has as many streams as a user may
   * have. No change is lost by a wait.
   */
  onStatus?: StatusListener | undefined;
}

/** The changes of a query, one by one or gathered. */
export type FollowedChanges<Query extends FollowQuery> = AsyncGenerator<
  Query extends { gather: number } ? Change[] : Change,
  void
>;

interface Connection extends StreamConnection {
  readonly shared: SharedChanges;
}

/** The options of one call, with the signal that ends it. */
interface FollowOptions extends Pick<FollowQuery, 'resource' | 'include'> {
  readonly signal: AbortSignal | undefined;
  readonly onStatus: StatusListener;
}

/**
 * Yields changes as they happen, without end. They begin at the moment of the call, whenever
 * the first one is read. The tabs of a session share one stream.
 * @throws {ProblemError} such as `cursor_expired`, or when the caller may no longer read
 */
export function followChanges<Query extends FollowQuery>(
  connection: Connection,
  { gather, after, onStatus, ...filter }: Query,
  signal: AbortSignal | undefined,
): FollowedChanges<Query> {
  const stop = new AbortController();
  const options: FollowOptions = {
    ...filter,
    signal: signal ? AbortSignal.any([signal, stop.signal]) : stop.signal,
    onStatus: withoutRepetition(onStatus),
  };

  const place = takePlace(connection, after, options);
  place.catch(() => {}); // thrown by the first `next()`
  const changes = follow(connection, place, options);

  return (
    gather === undefined ? changes : gatherChanges(changes, gather, () => stop.abort())
  ) as FollowedChanges<Query>;
}

async function* follow(
  connection: Connection,
  place: Promise<string>,
  options: FollowOptions,
): AsyncGenerator<Change, void> {
  const { shared } = connection;
  const after = await place;

  yield* shared.isPossible
    ? shared.follow({ ...options, after })
    : streamChanges(connection, { ...options, after });
}

/** Returns the place after which the changes begin: the present one, unless one was given. */
async function takePlace(
  { send, baseUrl }: Connection,
  after: string | undefined,
  { resource, signal, onStatus }: FollowOptions,
): Promise<string> {
  if (after !== undefined && after !== 'now') return after;

  const query = writeQuery({ after: 'now', resource });
  const address = `${baseUrl}/api/v1/Changes?${query}`;
  const read = async (): Promise<string> => {
    const response = await send(new Request(address, signal && { signal }), signal);
    await bodyOf(response);
    return response.headers.get('Next-Cursor') ?? 'now';
  };

  return untilPassed(read, { signal, onStatus });
}

/** Returns a listener that is called once while changes come. */
function withoutRepetition(onStatus: StatusListener | undefined): StatusListener {
  let isOpen = false;

  return (status, error) => {
    const isRepeated = isOpen && status === 'open';
    isOpen = status === 'open';
    if (!isRepeated) onStatus?.(status, error);
  };
}
