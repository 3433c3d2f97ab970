import {
  type Change,
  type ChangeInclude,
  type FollowStatus,
  pauseAfter,
  type StatusListener,
  type StreamConnection,
  streamChanges,
} from './change-stream.ts';
import { Mailbox } from './mailbox.ts';
import { readPages } from './pages.ts';
import { type Problem, ProblemError } from './problem-error.ts';
import type { Session } from './session.ts';
import { isBrowser } from './tabs.ts';
import { attempt } from './token-store.ts';

/** A follower with more messages reads pages in their place. */
const maxMessages = 1_000;
/**
 * The tab with the stream sends a message every 15 s, and before each wait of up to 30 s: one
 * that is silent for longer was frozen, and another tab takes its place.
 */
const maxSilentChecks = 6;
const checkMs = 15_000;

/** The cause of a wait, as a channel can carry it. */
interface Cause {
  readonly message: string;
  /** That of a `ProblemError`; undefined for a lost connection. */
  readonly status?: number;
  readonly problem?: Problem | undefined;
  readonly retryAfter?: number | undefined;
}

type Message =
  /** Asks the tab with the stream for its status, and for what changes must include. */
  | { readonly kind: 'join'; readonly included: readonly Included[] }
  /** The status of the stream, and its place: the `Id` of its last change. */
  | {
      readonly kind: 'status';
      readonly status: FollowStatus;
      readonly cause: Cause | undefined;
      readonly last: string;
    }
  /** A change of the stream, and the place before it. */
  | { readonly kind: 'change'; readonly former: string; readonly change: Change };

type Included = 'record' | 'etag';

/** The field of a change that has what it includes. */
const fields = { record: 'Record', etag: 'ETag' } as const;

/** A message, with the name of the session whose tabs it is for. */
type Sent = Message & { readonly session: string };

interface FollowOptions {
  readonly after: string;
  readonly resource?: string | undefined;
  readonly include?: ChangeInclude | undefined;
  readonly signal: AbortSignal | undefined;
  readonly onStatus: StatusListener;
}

interface Follower {
  readonly options: FollowOptions;
  readonly mailbox: Mailbox<Message>;
  /** The `Id` of the last change that the follower has received, or an earlier place. */
  position: string;
}

/** The stream of this tab, while it has the lock of the session. */
interface Lead {
  readonly session: string;
  last: string;
  status: FollowStatus;
  cause: Cause | undefined;
  /** Ends the present connection, so that the next one includes more. */
  restart: AbortController;
}

/**
 * The changes that the tabs of a session receive from one stream: the tab that holds a Web Lock
 * has it, and passes each change on by a BroadcastChannel. The stream has the changes of all
 * resources, and each tab takes those that it follows.
 *
 * No change is lost or doubled on the way. Each message names the change before its own: a
 * follower takes the message only if that is the last change that it has received. Otherwise,
 * it reads the pages after its own place. So tabs that join, are frozen, miss messages or
 * change places need no agreement with the others. A message is sent after the service has
 * published its change, so a page that is read later has that change.
 */
export class SharedChanges {
  readonly #name: string;
  readonly #connection: StreamConnection;
  readonly #session: Pick<Session, 'name' | 'onSession'>;
  readonly #followers = new Set<Follower>();
  #channel: InstanceType<typeof BroadcastChannel> | undefined;
  #lead: Lead | undefined;
  /** Ends the wait for the lock, or the stream of this tab. */
  #stop = new AbortController();
  /** What the followers of all tabs want changes to include. */
  readonly #included = new Set<Included>();
  /** Checks since the last message of the tab with the stream. */
  #silentChecks = 0;
  #timer: ReturnType<typeof setInterval> | undefined;

  /** @param name what the tabs that share sessions have in common */
  constructor(
    name: string,
    connection: StreamConnection,
    session: Pick<Session, 'name' | 'onSession'>,
  ) {
    this.#name = `${name} changes`;
    this.#connection = connection;
    this.#session = session;
    session.onSession = () => this.#changeSession();
  }

  /** True in a browser that has the parts, for a session that tabs can have in common. */
  get isPossible(): boolean {
    return (
      isBrowser &&
      this.#session.name !== undefined &&
      'BroadcastChannel' in globalThis &&
      globalThis.navigator?.locks !== undefined &&
      (globalThis as { origin?: string }).origin !== 'null' // a frame in a sandbox has no lock
    );
  }

  /**
   * Yields changes without end, from this tab's stream or that of another one.
   * @throws {ProblemError} such as `cursor_expired`, or when the caller may no longer read
   */
  async *follow(options: FollowOptions): AsyncGenerator<Change, void> {
    const { after, resource, include, signal } = options;
    const mailbox = new Mailbox<Message>(maxMessages);
    const follower: Follower = { options, mailbox, position: after };
    const isFollowed = resourceFilter(resource);
    const included = membersOf(include);
    /** The place of the stream when the follower read pages, and the changes on them. */
    let readAt: string | undefined;
    let read = new Set<string>();

    this.#join(follower);

    try {
      // The service filters what may be many changes.
      yield* this.#catchUp(follower, resource, change => read.add(change.Id));

      for (;;) {
        const message = await mailbox.take(signal);
        let isBehind = message === undefined;

        if (message?.kind === 'change') {
          const { former, change } = message;
          const isNext = former === follower.position;
          const isComplete = included.every(each => change[fields[each]] !== undefined);

          if (isNext && isComplete) {
            follower.position = change.Id;
            if (isFollowed(change)) yield withOnly(included, change);
          } else {
            isBehind = !read.delete(change.Id);
            if (!isComplete) this.#announce(follower);
          }
        } else if (message?.kind === 'status' && message.status === 'open') {
          isBehind = message.last !== follower.position && message.last !== readAt;
          readAt = message.last;
        }

        if (isBehind) {
          read = new Set();
          mailbox.clear(); // the pages have all changes of these messages
          const note = (change: Change) => read.add(change.Id);
          for await (const change of this.#catchUp(follower, undefined, note)) {
            if (isFollowed(change)) yield change;
          }
        }
      }
    } finally {
      this.#leave(follower);
    }
  }

  /**
   * Yields the changes after the place of a follower that there are now, and moves its place.
   * @param note called with each change
   */
  async *#catchUp(
    follower: Follower,
    resource: string | undefined,
    note: (change: Change) => void,
  ): AsyncGenerator<Change, void> {
    const { include, signal, onStatus } = follower.options;
    const { send, baseUrl } = this.#connection;
    let cursor: string | undefined;

    for (let failures = 0; ; failures++) {
      try {
        const pages = readPages<Change>({
          send,
          baseUrl,
          path: '/api/v1/Changes',
          query: { after: follower.position, resource, include },
          signal,
          onCursor: place => {
            cursor = place;
          },
        });
        for await (const change of pages) {
          follower.position = change.Id;
          note(change);
          yield change;
        }

        // Behind changes of other resources, which were read, too.
        if (resource !== undefined && cursor !== undefined) follower.position = cursor;
        return;
      } catch (error) {
        await pauseAfter(error, failures, { signal, onStatus });
      }
    }
  }

  #join(follower: Follower): void {
    this.#followers.add(follower);
    if (this.#followers.size === 1) this.#open();

    this.#announce(follower);
  }

  /** Asks for the status of the stream, and for what the follower wants changes to include. */
  #announce({ options }: Follower): void {
    const message = { kind: 'join', included: membersOf(options.include) } as const;
    this.#send(message);
    this.#welcome(message);
  }

  #leave(follower: Follower): void {
    this.#followers.delete(follower);
    if (this.#followers.size === 0) this.#close();
  }

  #open(): void {
    this.#channel = attempt(() => new BroadcastChannel(this.#name));
    if (this.#channel) {
      this.#channel.onmessage = ({ data }: { data: unknown }) => this.#receive(data as Sent);
    }
    this.#silentChecks = 0;
    this.#timer = setInterval(() => this.#checkSilence(), checkMs);
    void this.#elect();
  }

  #close(): void {
    this.#stop.abort();
    this.#channel?.close();
    this.#channel = undefined;
    clearInterval(this.#timer);
    this.#included.clear();
  }

  /** Follows the session of this tab, which another login or a logout has changed. */
  #changeSession(): void {
    if (this.#followers.size === 0) return;

    for (const { mailbox } of this.#followers) mailbox.lose();
    void this.#elect();
  }

  /** Counts, because the clock goes on while a machine sleeps. */
  #checkSilence(): void {
    this.#silentChecks++;
    if (this.#lead || this.#silentChecks < maxSilentChecks) return;

    this.#silentChecks = 0;
    void this.#elect({ steal: true });
  }

  /**
   * Waits until no other tab has the stream of the session, and opens it.
   * @param lock `steal` takes the place of a tab that is silent
   */
  async #elect(lock: { steal?: true } = {}): Promise<void> {
    this.#stop.abort();
    const stop = new AbortController();
    this.#stop = stop;
    const session = this.#session.name;
    if (session === undefined) return;

    try {
      await globalThis.navigator.locks.request(
        `${this.#name} ${session}`,
        lock.steal ? lock : { signal: stop.signal },
        () => this.#stream(session, stop.signal),
      );
    } catch (error) {
      if (stop.signal.aborted) return;
      // Another tab has taken the place of this one, which was frozen.
      if (error instanceof DOMException && error.name === 'AbortError') return this.#elect();

      for (const { mailbox } of this.#followers) mailbox.fail(error);
    }
  }

  /** Passes on the changes of a stream, until the signal is aborted. */
  async #stream(session: string, signal: AbortSignal): Promise<void> {
    const newest = [...this.#followers].at(-1);
    if (!newest || signal.aborted) return;

    const lead: Lead = {
      session,
      last: newest.position,
      status: 'waiting',
      cause: undefined,
      restart: new AbortController(),
    };
    this.#lead = lead;

    try {
      while (!signal.aborted) await this.#passChanges(lead, signal);
    } finally {
      if (this.#lead === lead) this.#lead = undefined;
    }
  }

  /** Passes on changes until the signal is aborted, or the stream must begin again. */
  async #passChanges(lead: Lead, signal: AbortSignal): Promise<void> {
    const restart = new AbortController();
    lead.restart = restart;

    const changes = streamChanges(this.#connection, {
      after: lead.last,
      include: includeOf(this.#included),
      signal: AbortSignal.any([signal, restart.signal]),
      onStatus: (status, error) => {
        if (status === 'open' && lead.status === 'open') return;
        lead.status = status;
        lead.cause = error && causeOf(error);
        this.#publishStatus(lead);
      },
      onAlive: () => this.#publishStatus(lead),
    });

    try {
      for await (const change of changes) {
        const former = lead.last;
        lead.last = change.Id;
        this.#publish({ kind: 'change', former, change });
      }
    } catch (error) {
      if (signal.aborted || !restart.signal.aborted) throw error;
    }
  }

  #publishStatus({ status, cause, last }: Lead): void {
    this.#publish({ kind: 'status', status, cause, last });
  }

  /** Sends a message to all followers, of this tab and of others. */
  #publish(message: Message): void {
    this.#send(message);
    this.#deliver(message);
  }

  #send(message: Message): void {
    const session = this.#lead?.session ?? this.#session.name;
    if (session !== undefined) this.#channel?.postMessage({ ...message, session });
  }

  #receive(message: Sent): void {
    if (message.session !== this.#session.name) return;

    if (message.kind === 'join') {
      this.#welcome(message);
    } else {
      this.#silentChecks = 0;
      this.#deliver(message);
    }
  }

  /** Lets a follower that joins know the status, and have what it wants changes to include. */
  #welcome({ included }: { readonly included: readonly Included[] }): void {
    const isNew = included.some(each => !this.#included.has(each));
    for (const each of included) this.#included.add(each);

    const lead = this.#lead;
    if (!lead) return;
    if (isNew) lead.restart.abort();
    this.#publishStatus(lead);
  }

  #deliver(message: Message): void {
    for (const { mailbox, options } of this.#followers) {
      mailbox.put(message);
      if (message.kind === 'status') {
        options.onStatus(message.status, message.cause && errorOf(message.cause));
      }
    }
  }
}

/** Returns a test whether a change is of one of the resources, by name or by path. */
function resourceFilter(resource: string | undefined): (change: Change) => boolean {
  if (resource === undefined) return () => true;

  const names = new Set(resource.split(','));
  return ({ Resource, Href }) => names.has(Resource) || names.has(Href.split('/')[3] ?? '');
}

/** Returns the text of `include`; undefined if nothing is included. */
function includeOf(included: ReadonlySet<Included>): ChangeInclude | undefined {
  const members = (['record', 'etag'] as const).filter(each => included.has(each));
  return members.length > 0 ? (members.join(',') as ChangeInclude) : undefined;
}

/** Returns the parts of `include`. */
function membersOf(include: ChangeInclude | undefined): Included[] {
  return include === undefined ? [] : (include.split(',') as Included[]);
}

/** Returns a change without what only others want it to include. */
function withOnly(included: readonly Included[], change: Change): Change {
  const { Record, ETag, ...rest } = change;
  return {
    ...rest,
    ...(included.includes('record') && { Record }),
    ...(included.includes('etag') && { ETag }),
  };
}

function causeOf(error: Error): Cause {
  const { message } = error;
  if (!(error instanceof ProblemError)) return { message };

  const { status, problem, retryAfter } = error;
  return { message, status, problem, retryAfter };
}

function errorOf({ message, status, problem, retryAfter }: Cause): Error {
  return status === undefined
    ? new TypeError(message)
    : new ProblemError(status, problem, retryAfter);
}
