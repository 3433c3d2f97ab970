import { toTimestamp } from '../audit/audit-log.ts';
import { snakeCase } from '../runtime/casing.ts';
import { type Cursor, cursorText } from './change-cursor.ts';
import { type ChangeSource, changeSources } from './change-sources.ts';
import type { ScannedRow } from './change-statement.ts';

type Row = Record<string, unknown>;

/** A change of a record. Clients receive the fields whose names begin with a capital letter (`sentChange`). */
export interface Change {
  /** The text of `cursor`. */
  readonly Id: string;
  /** Such as `country.updated`. */
  readonly Type: string;
  readonly Resource: string;
  readonly Key: string;
  readonly Action: string;
  readonly At: string;
  readonly UserGuid: string | null;
  /** The fields that an update has changed; empty for other actions. */
  readonly Fields: readonly string[];
  readonly Href: string;
  /** The record after the change; null if it is gone. */
  readonly Record: Row | null;
  /** The place after the change. */
  readonly cursor: Cursor;
  /** The business entity that the record belongs to. */
  readonly entityId: number | null;
}

const pastTense: Record<string, string> = { create: 'created', update: 'updated', delete: 'deleted' };

/** Returns the change of a row. @param madeIn the era in which its cursor is made */
export function changeOf(row: ScannedRow, madeIn: number): Change {
  const { resource, key, action, createdAt, userGuid, entityId, before, after, era, xid, kind, id } = row;
  const source = changeSources.get(resource);
  if (!source) throw new Error(`the feed has no resource ${resource}`);
  const cursor = { madeIn, era, xid, kind, id };
  return {
    Id: cursorText(cursor),
    Type: `${typeName(resource)}.${pastTense[action]}`,
    Resource: resource,
    Key: key,
    Action: action,
    At: createdAt,
    UserGuid: userGuid,
    Fields: action === 'update' ? changedFields(source, before ?? {}, after ?? {}) : [],
    Href: source.href(key, after ?? before ?? {}),
    Record: after && recordOf(source, after),
    cursor,
    entityId,
  };
}

/** Returns what clients receive of a change. */
export function sentChange(change: Change, isWithRecord: boolean): object {
  const { cursor: _, entityId: __, Record, ...thin } = change;
  return isWithRecord ? { ...thin, Record } : thin;
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

/** Returns the fields of the view that the row has columns for: no others leave the database. */
function recordOf({ fields }: ChangeSource, row: Row): Row {
  return Object.fromEntries(fields.map(([field, column]) => [field, fieldValue(column, row[column])]));
}

function fieldValue(column: string, value: unknown): unknown {
  return column.endsWith('_at') && typeof value === 'string' ? toTimestamp(value) : (value ?? null);
}
