import { randomUUID } from 'node:crypto';
import { z } from 'zod';
import { OperatorError } from '../../lib/log/operator-error.ts';
import type { Queryable } from '../../lib/postgres/shared-connection.ts';
import { countText } from '../command/texts.ts';
import { doubtUnfinished, markRemoving } from './archive-rows.ts';
import { FullTargetError, type Target, type WriteConditions } from './target/target.ts';

/*
 * One control database of an installation writes to its target. A clone of the machine has the
 * same installation and the same logins, so a random id tells them apart: it stands in
 * `<installation>/writer.json`, and in the control database. Each claim replaces it:
 *
 *   W1 The control database stores the next id beside the present one, and commits.
 *   W2 The file gets the next id, if it still has the present one.
 *   W3 The control database forgets the former id, when the work is done.
 *
 * A control database that knows the id of the file made the last claim, or is a copy of the one
 * that did, from after its W1. Of such copies, the next one that claims shuts out the others,
 * which do not know its id. A process that is killed after W1 or W2 leaves the file with one of
 * the two ids that its control database knows.
 *
 * A full target has no room for W2, so room is made first: by the removal of unfinished
 * objects, then of archives that the work would remove in any case, one at a time, each while
 * the file has an id of this control database. So a copy that knows the same id can remove such
 * archives, too, until one of the two has claimed: `maxUnclaimed` in each command.
 */

/**
 * Maximum archives that a command removes before its claim. More may not help: a store can
 * report its free space late, and others can fill a disk.
 */
const maxUnclaimed = 16;

const contract = z.object({ id: z.uuid() });

/** Returns the name of the object that says which control database writes. */
function writerFile(installation: string): string {
  return `${installation}/writer.json`;
}

/** The writer of a target, as its control database knows it. */
interface KnownWriter {
  readonly installation: string;
  readonly present: string | null;
  readonly next: string | null;
}

/**
 * The right of one process to write and remove, which it has from its claim to the end of its
 * lock.
 */
export interface Claim {
  /** The id of the installation. */
  readonly installation: string;
  /** Names of the archives that were removed, because the target was full. */
  readonly madeRoom: readonly string[];
  /**
   * Checks that this process still has the claim, before something is removed for good.
   * @throws when the lock is lost with its connection, or another control database has taken
   *   over
   */
  confirm(): Promise<void>;
  /** Forgets the former id (W3), when the work is done. */
  release(): Promise<void>;
}

/**
 * Claims the target for this control database, before anything is written or removed. The
 * caller has the lock `archives`.
 * @param findRemovable returns the names of the archives that the caller is to remove, the first
 *   one first: some go before the claim when the target is full
 * @throws {FullTargetError} when the target is full, and stays so
 * @throws {OperatorError} when another control database writes there, or it is no target yet
 */
export async function claimTarget(
  control: Queryable,
  target: Target,
  findRemovable: (installation: string) => Promise<readonly string[]>,
): Promise<Claim> {
  await target.check();
  const known = await readKnownWriter(control);
  const { installation } = known;
  const { id: present, version } = await readWriter(target, known);

  const next = randomUUID();
  await control.query('set synchronous_commit = on'); // W1 is durable before W2
  await control.query(
    'update installation set target_writer = $1, next_target_writer = $2, backup_target = $3',
    [present, next, target.description],
  );
  const madeRoom = await withRoom(target, {
    write: () => writeWriter(target, installation, next, version),
    confirm: () => readWriter(target, { installation, present, next: null }),
    markRemoving: name => markRemoving(control, target, [name]),
    installation,
    findRemovable,
  });

  return {
    installation,
    madeRoom,
    confirm: async () => {
      // This fails once the connection is lost, and the lock with it.
      await control.query('select 1');
      await readWriter(target, { installation, present: next, next: null });
    },
    release: async () => {
      await control.query(
        'update installation set target_writer = $1, next_target_writer = null where next_target_writer = $1',
        [next],
      );
    },
  };
}

/**
 * Checks that this control database is the one that writes to the target, and changes nothing.
 * @returns the id of the installation
 * @throws {OperatorError} as `claimTarget`
 */
export async function requireWriter(control: Queryable, target: Target): Promise<string> {
  await target.check();
  const known = await readKnownWriter(control);
  await readWriter(target, known);

  return known.installation;
}

/** The outcome of `backup init`, or its plan. */
export interface InitResult {
  readonly target: string;
  /**
   * `new`: it was no target of this installation; `taken over`: another control database wrote
   * there.
   */
  readonly state: 'new' | 'taken over' | 'unchanged';
  /** The behaviour of the store at conditions; undefined for a plan. */
  readonly conditions: WriteConditions | undefined;
}

/**
 * Makes the target the place of the archives of this installation, and this control database
 * the one that writes there. The caller has the lock `archives`.
 * @param takeOver true: the control database that writes there is gone
 * @throws {OperatorError} when another control database writes there, without `takeOver`
 */
export async function initTarget(
  control: Queryable,
  target: Target,
  { takeOver, isDryRun }: { readonly takeOver: boolean; readonly isDryRun: boolean },
): Promise<InitResult> {
  const known = await readKnownWriter(control);
  const { installation } = known;
  if (!isDryRun) await target.mark();

  const document = await target.readDocument(writerFile(installation));
  const present = document && parseWriter(document.text);
  const isOwn = present !== undefined && isKnown(known, present);
  if (document && !isOwn && !takeOver) throw otherWriter(target);

  const state = isOwn ? 'unchanged' : document ? 'taken over' : 'new';
  if (isDryRun) return { target: target.description, state, conditions: undefined };

  if (takeOver) await doubtUnfinished(control);
  if (!isOwn) {
    const id = randomUUID();
    await control.query('set synchronous_commit = on');
    await control.query('update installation set next_target_writer = $1', [id]);
    await writeWriter(target, installation, id, document?.version);
    await control.query(
      'update installation set target_writer = $1, next_target_writer = null, backup_target = $2',
      [id, target.description],
    );
  }

  return {
    target: target.description,
    state,
    conditions: await target.tryConditions(writerFile(installation)),
  };
}

async function readKnownWriter(control: Queryable): Promise<KnownWriter> {
  const { rows } = await control.query<{ [Field in keyof KnownWriter]: KnownWriter[Field] }>(
    'select id as installation, target_writer as present, next_target_writer as next from installation',
  );
  const [known] = rows;
  if (!known) {
    throw new OperatorError(
      'The control database has no row of the installation: run bin/backoffice doctor',
    );
  }

  return known;
}

/** @throws {OperatorError} when the file has neither id of this control database */
async function readWriter(
  target: Target,
  known: KnownWriter,
): Promise<{ id: string; version: string }> {
  const document = await target.readDocument(writerFile(known.installation));
  if (!document) {
    throw new OperatorError(
      `${target.description} is no target of this installation yet: it has no ${writerFile(known.installation)}. ` +
        'If it is the right place, and new: bin/backoffice backup init',
    );
  }

  const id = parseWriter(document.text);
  if (id === undefined || !isKnown(known, id)) throw otherWriter(target);

  return { id, version: document.version };
}

/**
 * Writes the file of the writer, and makes room for it in a full target.
 * @returns the names of the archives that were removed
 * @throws {FullTargetError} when that is not enough
 */
async function withRoom(
  target: Target,
  {
    write,
    confirm,
    markRemoving: mark,
    installation,
    findRemovable,
  }: {
    readonly write: () => Promise<void>;
    readonly confirm: () => Promise<unknown>;
    readonly markRemoving: (name: string) => Promise<void>;
    readonly installation: string;
    readonly findRemovable: (installation: string) => Promise<readonly string[]>;
  },
): Promise<string[]> {
  if (await hasRoom(write)) return [];

  await confirm();
  await target.removeUnfinished(`${installation}/`);
  const removed: string[] = [];

  for (const name of (await findRemovable(installation)).slice(0, maxUnclaimed)) {
    if (await hasRoom(write)) return removed;

    await confirm();
    await mark(name);
    await target.remove(name);
    removed.push(name);
  }

  if (await hasRoom(write)) return removed;

  throw new FullTargetError(
    removed.length > 0
      ? `${target.description} is still full: ${countText(removed.length, 'archive')} had to go and made no room for ` +
          `${writerFile(installation)}. Make room, then try again; a store that counts its room late needs some minutes`
      : `${target.description} is full, and has no archive that is to go. Make room there, or set a shorter BACKUP_KEEP`,
  );
}

/** @returns false when the target was full for what `write` writes */
async function hasRoom(write: () => Promise<void>): Promise<boolean> {
  try {
    await write();
    return true;
  } catch (error) {
    if (error instanceof FullTargetError) return false;
    throw error;
  }
}

async function writeWriter(
  target: Target,
  installation: string,
  id: string,
  version: string | undefined,
): Promise<void> {
  const name = writerFile(installation);
  await target.replaceDocument(name, `${JSON.stringify({ id })}\n`, version);
  // The result of the write is no proof that this writer has the file: a store can ignore the
  // condition, so that the last of two writers has the file; and a request that is sent again
  // does not find the version that it has replaced.
  const written = await target.readDocument(name);
  if (written && parseWriter(written.text) === id) return;

  throw written && written.version === version ? notReplaced(target, name) : otherWriter(target);
}

/** @returns undefined for a file that was changed: it has no id */
function parseWriter(text: string): string | undefined {
  try {
    return contract.parse(JSON.parse(text)).id;
  } catch {
    return undefined;
  }
}

function isKnown({ present, next }: KnownWriter, id: string): boolean {
  return id === present || id === next;
}

/**
 * Returns the error of a store that returns the former text after a write, or that never meets
 * a condition.
 */
function notReplaced({ description }: Target, name: string): OperatorError {
  return new OperatorError(
    `${description} still has the former ${name}, which was replaced: try again. If it stays, nothing can be archived ` +
      'there: the store, or a proxy before it, shows what was written late, or refuses if-match for the present ETag',
  );
}

function otherWriter({ description }: Target): OperatorError {
  return new OperatorError(
    `Another control database of this installation writes to ${description}. One of them is a copy, and needs a ` +
      'BACKUP_TARGET of its own. If the other one is gone, take its place: bin/backoffice backup init --take-over',
  );
}
