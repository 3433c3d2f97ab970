import { z } from 'zod';
import { describeFields, guid, timestamp } from '../../lib/http/request/fields.ts';
import { Representation, versionTag } from '../../lib/http/response/representation.ts';
import { snakeCase } from '../../lib/runtime/casing.ts';
import { changeActions, toTimestamp } from '../audit/audit-log.ts';
import { idsShownTo, isForEntity } from '../resources/rest/named-entities.ts';
import { type Cursor, eventIdOf } from './change-cursor.ts';
import { type ChangeFilter, type ChangeSource, changeSources } from './change-sources.ts';
import type { ScannedRow } from './change-statement.ts';
import { readerCursorText } from './reader-cursor.ts';

type Row = Record<string, unknown>;

/** The fields of a change that clients receive (`sentChange`). */
export const changeView = describeFields(
  {
    Id: z.string(),
    EventId: z.string(),
    Type: z.string(),
    Resource: z.string(),
    Key: z.string(),
    Action: z.enum(changeActions),
    At: timestamp(),
    UserGuid: guid().nullable(),
    Fields: z.array(z.string()),
    Href: z.string(),
    Record: z.record(z.string(), z.unknown()).nullable().optional(),
    ETag: z.string().nullable().optional(),
  },
  {
    Id:
      'The cursor after the change: send it as `after`, or as `Last-Event-ID` of the stream. It changes only with what ' +
      'the caller may see.',
    EventId:
      'The id of the change, the same for every reader, in the stream and in the header `webhook-id` of each message ' +
      'about it: by it you know what you have already.',
    Type: 'The resource and what happened, such as `country.updated`.',
    Resource: 'The name of the resource, such as `Country`.',
    Key: 'The id or the code of the record.',
    Action: 'What was done with the record.',
    At: 'When the change was made. Changes are in the order of their transactions, not of this time.',
    UserGuid:
      'The guid of the user who made the change; null for a change of the operator, and for an activity.',
    Fields: 'The names of the fields that an update has changed; empty for other actions.',
    Href: 'The path of the record.',
    Record:
      'The record after the change, without fields that are read from other records; null if it is gone. Only with ' +
      '`include=record`.',
    ETag:
      'The tag of the record after the change: send it as `If-Match` of a change; null if the record is gone. Only with ' +
      '`include=etag`.',
  },
).meta({ title: 'Change' });

/** A change of a record. */
export type Change = Omit<z.output<typeof changeView>, 'Id' | 'EventId' | 'Record' | 'ETag'> & {
  /** The record after the change; null if it is gone. */
  readonly Record: Row | null;
  /** The place after the change. */
  readonly cursor: Cursor;
  /** The business entity that the record belongs to. */
  readonly entityId: number | null;
  /** The business entities that the record named before and after, if it names some at all. */
  readonly named?: { readonly before: NamedIds; readonly after: NamedIds };
};

/** Ids of business entities; null if there is no record. */
type NamedIds = readonly number[] | null;

const pastTense: Record<string, string> = {
  create: 'created',
  update: 'updated',
  delete: 'deleted',
};

/**
 * Returns the change of a row.
 * @param madeIn the era in which its cursor is made
 */
export function changeOf(row: ScannedRow, madeIn: number): Change {
  const { resource, key, action, createdAt, userGuid, entityId, era, xid, kind, id, madeAt } = row;
  const before = contentOf(row.before);
  const after = contentOf(row.after);
  const source = changeSources.get(resource);
  if (!source) throw new Error(`the feed has no resource ${resource}`);

  return {
    Type: `${typeName(resource)}.${pastTense[action]}`,
    Resource: resource,
    Key: key,
    Action: action,
    At: createdAt,
    UserGuid: userGuid,
    Fields: action === 'update' ? changedFields(source, before ?? {}, after ?? {}) : [],
    Href: source.href(key, after ?? before ?? {}),
    Record: after && recordOf(source, after),
    cursor: { madeIn, era, xid, kind, id, madeAt },
    entityId,
    ...namedIn(source, before, after),
  };
}

function namedIn(
  { namedColumn }: ChangeSource,
  before: Row | null,
  after: Row | null,
): Pick<Change, 'named'> {
  if (namedColumn === undefined) return {};
  const idsOf = (row: Row | null): NamedIds => {
    const ids = row?.[namedColumn];
    return Array.isArray(ids) ? ids : null;
  };

  return { named: { before: idsOf(before), after: idsOf(after) } };
}

/**
 * Returns a change as its reader sees it; undefined when the filter does not let it pass, as
 * `changeStatement` decides in SQL, and when no field that the reader sees has changed. For a
 * caller of scope `Self`, a record that names another entity only is gone, and of the ids that
 * a record names the own one alone is left.
 */
export function seenChange(
  { resources, actions, ownEntity }: ChangeFilter,
  change: Change,
): Change | undefined {
  const { Resource, Action, entityId, named, Record, Fields } = change;
  if (!resources.includes(Resource) || actions?.includes(Action) === false) return undefined;
  if (!isVisible(change)) return undefined;
  if (ownEntity === undefined) return change;

  const source = changeSources.get(Resource);
  if (source?.isOwned) return entityId === ownEntity.id ? change : undefined;
  if (!named || !source?.namedColumn) return change;

  const [before, after] = [named.before, named.after].map(ids =>
    ids && isForEntity(ids, ownEntity.id) ? idsShownTo(ids, ownEntity.id) : null,
  );
  if (!before && !after) return undefined;

  const [field = ''] = source.fields.find(([, column]) => column === source.namedColumn) ?? [];
  const isSame = String(before) === String(after);
  const seen = {
    ...change,
    Fields: isSame ? Fields.filter(each => each !== field) : Fields,
    Record: Record && after ? { ...Record, [field]: after } : null,
  };
  return isVisible(seen) ? seen : undefined;
}

/**
 * True unless a change is an update of columns that no response has: nobody receives that, as
 * nothing has changed for a reader. The audit log has it.
 */
function isVisible({ Action, Fields }: Pick<Change, 'Action' | 'Fields'>): boolean {
  return Action !== 'update' || Fields.length > 0;
}

const contentOf = (text: string | null): Row | null => (text === null ? null : JSON.parse(text));

/**
 * Returns the part of a change that a reader receives.
 * @param access the mark of the reader's access (`accessMark`)
 * @param included what the part has beside the change itself
 */
export function sentChange(
  change: Change,
  access: string,
  included: readonly ChangeInclude[],
): object {
  const { cursor, entityId: _, named: __, Record, ...thin } = change;
  const sent: Row = {
    Id: readerCursorText(cursor, access),
    EventId: eventIdOf(cursor),
    ...thin,
  };

  if (included.includes('record')) sent.Record = Record;
  if (included.includes('etag')) sent.ETag = Record && tagOf(change.Resource, Record);
  return sent;
}

/** The values that changes may have beside their own fields. */
export const changeIncludes = ['record', 'etag'] as const;
export type ChangeInclude = (typeof changeIncludes)[number];

/**
 * Returns the `ETag` of a record. That of a record with fields of other records, which a change
 * does not have, is the part that `If-Match` compares.
 */
function tagOf(resource: string, record: Row): string {
  return changeSources.get(resource)?.isPartial
    ? versionTag(record)
    : Representation.of(record).tag;
}

/** `UnitOfMeasure` → `unit_of_measure`. */
function typeName(resource: string): string {
  return snakeCase(resource).slice(1);
}

function changedFields({ fields }: ChangeSource, before: Row, after: Row): string[] {
  return fields
    .filter(([, column]) => JSON.stringify(before[column]) !== JSON.stringify(after[column]))
    .map(([field]) => field);
}

/**
 * Returns the fields of the view that the row has columns for: no others leave the database.
 */
function recordOf({ fields }: ChangeSource, row: Row): Row {
  return Object.fromEntries(
    fields.map(([field, column]) => [field, fieldValue(column, row[column])]),
  );
}

function fieldValue(column: string, value: unknown): unknown {
  return column.endsWith('_at') && typeof value === 'string' ? toTimestamp(value) : (value ?? null);
}
