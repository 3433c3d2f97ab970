import { z } from 'zod';
import { commaList, limit } from '../../lib/http/request/fields.ts';
import { EventStream } from '../../lib/http/response/event-stream.ts';
import { Page } from '../../lib/http/response/list-page.ts';
import { Representation } from '../../lib/http/response/representation.ts';
import { fieldProblem } from '../../lib/problems.ts';
import { invalid } from '../../lib/runtime/field-error.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import { resourceList } from '../resources/resource-names.ts';
import {
  type Change,
  type ChangeInclude,
  changeIncludes,
  changeView,
  sentChange,
} from './change.ts';
import { type Cursor, firstCursor } from './change-cursor.ts';
import { accessChanged, readChanges } from './change-reader.ts';
import { changeSources, visibleChanges } from './change-sources.ts';
import type { ChangeStreams } from './change-streams.ts';
import {
  accessMark,
  parseReaderCursor,
  type ReaderCursor,
  readerCursorText,
} from './reader-cursor.ts';

const path = '/api/v1/Changes';
const tag = 'Changes';

const placeOf = (text: string): ReaderCursor | 'now' | undefined =>
  text === 'now' ? text : parseReaderCursor(text);
const isPlace = (text: string): boolean => placeOf(text) !== undefined;
const cursor = z
  .string()
  .refine(isPlace, invalid('must be the Id of a change, or now', 'wrong_format'))
  .transform(text => placeOf(text)!);

const names = [...changeSources.keys()];
const parameters = {
  after: cursor
    .optional()
    .describe('The `Id` of a change, a `Next-Cursor`, or `now`: return what follows.'),
  resource: resourceList([...changeSources.values()])
    .optional()
    .describe(
      `Return only changes of these resources, separated by commas: ${names.join(', ')}. The name ` +
        'of a path, such as `Countries`, stands for its resource.',
    )
    .meta(commaList),
  include: z
    .enum(['record', 'etag', 'record,etag', 'etag,record'])
    .transform(text => changeIncludes.filter(each => text.split(',').includes(each)))
    .optional()
    .describe('`record` adds `Record` to each change, `etag` the `ETag` of the record.')
    .meta(commaList),
};
const streamQuery = z.object(parameters);
const query = z.object({ ...parameters, limit: limit() });

export function changeRoutes(services: { changeStreams: ChangeStreams }): TenantRoute[] {
  return [
    defineRoute({
      method: 'GET',
      path: `${path}/stream`,
      access: 'user',
      tag,
      summary: 'The changes of records as server-sent events, as they happen',
      description:
        'Sends each change as an event whose `data` is a change and whose `id` is its ' +
        'cursor. Begins after `Last-Event-ID`, else after `after`, else now. The last ' +
        'event of a stream is `end`, whose `Reason` says why.',
      query: streamQuery,
      takesLastEventId: true,
      problems: ['forbidden', 'cursor_expired'],
      contentType: 'text/event-stream; charset=utf-8',
      response: z.string(),
      handler: async ({ query, lastEventId }, context) => {
        const { tenant, caller } = context;
        const { changeStreams } = services;
        const access = accessMark(caller);
        const request = { tenant, caller, access, filter: visibleChanges(caller, query.resource) };
        changeStreams.requireRoom(request);

        const place =
          lastEventId === undefined ? (query.after ?? 'now') : parseReaderCursor(lastEventId);
        if (!place) {
          throw fieldProblem('Last-Event-ID', 'must be the id of an event', 'wrong_format');
        }

        const asked = cursorOf(place, access);
        const { changes, last } = await readChanges(select => context.read(select), {
          ...request,
          after: asked,
          limit: 1,
        });
        const after = asked === 'now' || changes.length === 0 ? last : asked;

        const included = query.include ?? [];
        changeStreams.requireRoom(request); // other streams may have begun meanwhile
        return new EventStream(sink => changeStreams.begin({ ...request, after, included }, sink));
      },
    }),

    defineRoute({
      method: 'GET',
      path,
      access: 'user',
      tag,
      summary: 'The changes of records after a cursor',
      description:
        'Each change of a record, in an order in which no change appears before one that was ' +
        'read already. Without `after`, begins with the oldest change that is left; ' +
        '`after=now` begins with the next one. Send the header `Next-Cursor` as `after` ' +
        'later, also that of an empty page; `Link` has the path of a page that exists now. ' +
        'A page whose records have 4 MiB ends before `limit`. Changes of users and roles ' +
        'are in the audit log only.',
      query,
      hasCursor: true,
      problems: ['forbidden', 'cursor_expired'],
      response: z.array(changeView),
      handler: async ({ query: { after: place, limit, resource, include } }, context) => {
        const access = accessMark(context.caller);
        const after = place ? cursorOf(place, access) : firstCursor;
        const filter = visibleChanges(context.caller, resource);

        const { changes, last, isEnd } = await readChanges(select => context.read(select), {
          after,
          limit,
          filter,
        });

        const cursor = readerCursorText(last, access);
        const next = new URLSearchParams({
          after: cursor,
          limit: String(limit),
          ...(resource && { resource: resource.join() }),
          ...(include && { include: include.join() }),
        });

        const page = await Representation.ofList(changeTexts(changes, access, include ?? []));
        return new Page(page, { next: isEnd ? undefined : `${path}?${next}`, cursor });
      },
    }),
  ];
}

/** @throws {Problem} `cursor_expired` for a cursor of a reader who saw other changes */
function cursorOf(place: ReaderCursor | 'now', access: string): Cursor | 'now' {
  if (place === 'now') return place;
  if (place.access !== access) throw accessChanged();

  return place.cursor;
}

/**
 * Yields the text of each change. Encodes a change only when its text is taken, so that a large
 * page is encoded in parts.
 */
function* changeTexts(
  changes: readonly Change[],
  access: string,
  included: readonly ChangeInclude[],
): Iterable<string> {
  for (const change of changes) {
    yield JSON.stringify(sentChange(change, access, included));
  }
}
