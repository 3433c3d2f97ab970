import type { Statement } from '../postgres/statement.ts';
import type { Caller } from '../tenancy/caller.ts';

/** What a client asked for. */
export interface ImportOrder {
  readonly resource: string;
  readonly mode: 'create' | 'upsert';
  readonly dryRun: boolean;
  readonly atomic: boolean;
  /** `own` when the ids in the file are those of this tenant. */
  readonly ids?: 'own' | undefined;
}

/** One error of a file, under the names of the API. */
export interface ImportError {
  /** The line on which the row begins; the header is line 1. */
  readonly Line: number;
  /** Empty when the error belongs to no single field. */
  readonly Field: string;
  readonly Code: string;
  readonly Reason: string;
}

/** The number of rows, by what happened to them, and the first errors. */
export interface ImportCounts {
  rows: number;
  created: number;
  updated: number;
  unchanged: number;
  refused: number;
  errors: ImportError[];
}

/** An import that has been stored completely. */
export interface StoredImport extends ImportOrder {
  readonly id: number;
  /** The setting `app.actor` of the request that brought the file. */
  readonly actor: string;
  /** The number of times that a process began to run it. */
  readonly attempts: number;
  /** The session that sent the file; null for a legacy token. */
  readonly sessionId: string | null;
  /** The legacy token that sent the file, in hexadecimal; null for a session. */
  readonly legacyTokenHash: string | null;
}

const maxUnfinished = 10;
const keptDays = 7;

const statement = (name: string, text: string, values: unknown[]): Statement => ({
  name: `import_${name}`,
  text,
  values,
});

/**
 * Inserts an import unless the tenant has 10 that are unfinished. Also deletes some that ended more than 7 days ago,
 * and those whose file did not arrive within an hour.
 */
export const insertImport = (
  { resource, mode, dryRun, atomic }: ImportOrder,
  actor: string,
  { sessionId, legacyTokenHash }: Pick<Caller, 'sessionId' | 'legacyTokenHash'>,
): Statement =>
  statement(
    'insert',
    `with expired as (
       delete from imports where id in (
         select id from imports
          where created_at < now() - interval '${keptDays} days' and state in ('done', 'rejected')
             or created_at < now() - interval '1 hour' and state = 'receiving'
          order by id limit 10 for update skip locked))
     insert into imports (resource, mode, dry_run, atomic, actor, session_id, legacy_token_hash)
     select $1, $2, $3, $4, $5, $6::uuid, decode($7, 'hex')
      where (select count(*) from imports
              where state in ('queued', 'running')
                 or state = 'receiving' and created_at > now() - interval '1 hour') < ${maxUnfinished}
     returning id::float8`,
    [resource, mode, dryRun, atomic, actor, sessionId || null, legacyTokenHash ?? null],
  );

/**
 * Stores a piece of the file. No row: another process has deleted the import, because no process was receiving its
 * file.
 */
export const insertChunk = (id: number, number: number, bytes: Buffer): Statement =>
  statement(
    'insert_chunk',
    `insert into import_chunks (import_id, number, bytes)
     select id, $2, $3 from imports where id = $1 and state = 'receiving' returning number`,
    [id, number, bytes],
  );

export const selectChunk = (id: number, number: number): Statement =>
  statement('select_chunk', 'select bytes from import_chunks where import_id = $1 and number = $2', [id, number]);

/** Makes an import whose file has arrived ready to run. No row: as for `insertChunk`. */
export const queueImport = (id: number): Statement =>
  statement('queue', `update imports set state = 'queued' where id = $1 and state = 'receiving' returning id`, [id]);

/** Deletes an import whose file has not arrived. No row: the file has arrived, or there is no such import. */
export const deleteUpload = (id: number): Statement =>
  statement('delete_upload', `delete from imports where id = $1 and state = 'receiving' returning id`, [id]);

/**
 * Also deletes the import if its file has not arrived. One row if the import has not ended, or its file arrives now.
 */
export const settleImport = (id: number): Statement =>
  statement(
    'settle',
    `with deleted as (delete from imports where id = $1 and state = 'receiving' returning id)
     select id from imports
      where id = $1 and state in ('receiving', 'queued', 'running') and not exists (select from deleted)`,
    [id],
  );

/** The import as the API shows it. No row while its file is arriving, which is the state `receiving`. */
export const selectImport = (id: number): Statement =>
  statement(
    'select',
    `select id::float8 as "Id", resource as "Resource", mode as "Mode", dry_run as "DryRun", atomic as "Atomic",
            state as "State", rows as "Rows", created as "Created", updated as "Updated", unchanged as "Unchanged",
            refused as "Refused", errors as "Errors"
       from imports where id = $1 and state <> 'receiving'`,
    [id],
  );

/** Counts an attempt to run an import. No row: it has ended, or a process is running an import of the tenant. */
export const beginImport = (id: number): Statement =>
  statement(
    'begin',
    `update imports set state = 'running', attempts = attempts + 1
      where id = (select id from imports where id = $1 and state in ('queued', 'running') for update skip locked)
        and pg_try_advisory_xact_lock(${importLock})
     returning id::float8, resource, mode, dry_run as "dryRun", atomic, actor, attempts, session_id as "sessionId",
               encode(legacy_token_hash, 'hex') as "legacyTokenHash"`,
    [id],
  );

/** Lets an import that was stopped before its end run again later, and does not count the attempt. */
export const requeueImport = (id: number): Statement =>
  statement('requeue', `update imports set state = 'queued', attempts = attempts - 1 where id = $1 returning id`, [id]);

/**
 * Locks a begun import until the transaction ends. One row when this transaction is the only one of the tenant that
 * runs an import, and nobody has finished it.
 */
export const lockImport = (id: number): Statement =>
  statement(
    'lock',
    `select id from imports
      where id = $1 and state = 'running' and pg_try_advisory_xact_lock(${importLock}) for update skip locked`,
    [id],
  );

/** Stores the result, and deletes the bytes of the file. */
export const finishImport = (id: number, state: 'done' | 'rejected', counts: ImportCounts): Statement =>
  statement(
    'finish',
    `with chunks as (delete from import_chunks where import_id = $1)
     update imports set state = $2, rows = $3, created = $4, updated = $5, unchanged = $6, refused = $7, errors = $8,
            finished_at = now()
      where id = $1 returning id`,
    [
      id,
      state,
      counts.rows,
      counts.created,
      counts.updated,
      counts.unchanged,
      counts.refused,
      JSON.stringify(counts.errors),
    ],
  );

/** Advisory lock in the tenant's database: one import at a time. */
const importLock = 727_111;
