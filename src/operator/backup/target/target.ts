import type { Readable } from 'node:stream';
import { OperatorError } from '../../../lib/log/operator-error.ts';

/** An object of a target, as its listing has it. */
export interface StoredObject {
  /** Relative to the target, with `/` between folders. */
  readonly name: string;
  /** In bytes. */
  readonly size: number;
  /** The time by the clock of the store. */
  readonly modifiedAt: Date;
  /**
   * The checksum of the bytes by the store (S3: its ETag); absent where it computes none.
   */
  readonly checksum?: string;
}

/** A small object that can be replaced: its text, and its version. */
export interface StoredDocument {
  readonly text: string;
  /** Opaque: an ETag, or a digest. */
  readonly version: string;
}

/** The behaviour of a store at a write that has a condition. */
export interface WriteConditions {
  /** True if the store refuses to replace an object on *if-none-match*. */
  readonly ifNoneMatch: boolean;
  /** True if the store refuses to replace another version on *if-match*. */
  readonly ifMatch: boolean;
}

/** The outcome of `erase`: the objects below a prefix that were removed, and those left. */
export interface Erased {
  /** The number of objects and versions that were removed. */
  readonly removed: number;
  /** Names of the objects, or of versions of them, that the store still has. */
  readonly left: readonly string[];
  /**
   * The store's reason why versions are left; null: nothing is left, as far as the store
   * reports.
   */
  readonly error: string | null;
}

/**
 * The store of archives. An object that is listed or read is complete: a process that is killed
 * while it writes leaves no object of that name. Every call ends when the store is silent for
 * too long, and throws an `OperatorError` that says what to do.
 */
export interface Target {
  /** For messages: `folder /backup`, `s3://bucket/prefix`. */
  readonly description: string;

  /**
   * Checks that the target is there, before anything else is done with it.
   * @throws {OperatorError} when it cannot be used, or a folder has no file of `backup init`
   */
  check(): Promise<void>;

  /**
   * Makes the folder or bucket a target, for `backup init`: a folder gets the file without
   * which `check` refuses it.
   */
  mark(): Promise<void>;

  /** Returns the objects whose names begin with `prefix`, in no particular order. */
  list(prefix: string): AsyncIterable<StoredObject>;

  /**
   * Reads an object. The stream fails when the store ends it early or falls silent, and when
   * the bytes are not those of the store's own checksum.
   * @throws {MissingObjectError} when there is no such object
   * @throws {DamagedObjectError} by the stream, when the bytes are not those of the checksum
   */
  read(name: string): Promise<Readable>;

  /**
   * Writes an object, which appears whole or not at all. Holds a few MiB in memory. If `body`
   * fails, so does this, and nothing is left of the object.
   * @returns its size in bytes
   * @throws {FullTargetError} when there is no room for it
   */
  write(name: string, body: Readable): Promise<{ readonly size: number }>;

  /**
   * Removes an object; does nothing when there is none. Former versions stay where a bucket
   * keeps them.
   */
  remove(name: string): Promise<void>;

  /**
   * Removes all objects below `prefix` and all of their versions, and lists those that are
   * left.
   */
  erase(prefix: string): Promise<Erased>;

  /**
   * Removes the unfinished objects of killed writers below `prefix`: a writer that is at work
   * there fails.
   */
  removeUnfinished(prefix: string): Promise<void>;

  /**
   * Reads a small object.
   * @returns undefined when there is none
   */
  readDocument(name: string): Promise<StoredDocument | undefined>;

  /**
   * Writes a small object, if it still has the version that was read.
   * @param former undefined: if there is none
   * @returns false when it has another version now: then nothing was written
   * @throws {FullTargetError} when there is no room for it; it keeps its version
   */
  replaceDocument(name: string, text: string, former: string | undefined): Promise<boolean>;

  /** Tries how the store handles conditions: writes the present text of the object again. */
  tryConditions(name: string): Promise<WriteConditions>;
}

/** A target has no room for what is to be written: its disk is full, or a quota is used up. */
export class FullTargetError extends OperatorError {
  override name = 'FullTargetError';
}

/** A target has returned other bytes of an object than its own checksum says. */
export class DamagedObjectError extends OperatorError {
  override name = 'DamagedObjectError';
}

/** A target has no object of a name. */
export class MissingObjectError extends OperatorError {
  override name = 'MissingObjectError';

  constructor(description: string, object: string) {
    super(`${description} has no ${object}`);
  }
}
