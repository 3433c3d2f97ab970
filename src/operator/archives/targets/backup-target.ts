/** A file of a backup target. */
export interface StoredFile {
  readonly name: string;
  readonly bytes: number;
}

/**
 * Where archives are stored. Names are relative, with `/` between folders. A file that is listed or read is complete: a
 * process that is killed while it writes leaves no file of that name.
 */
export interface BackupTarget {
  /** For messages: `folder /backup`, `s3://bucket/prefix`. */
  readonly description: string;
  /** @throws {OperatorError} when the target cannot be used */
  check(): Promise<void>;
  /** Writes a file, or replaces it. Holds a few MiB in memory at most. @returns its size in bytes */
  write(name: string, bytes: AsyncIterable<Buffer>): Promise<number>;
  /** @returns undefined when there is no such file */
  read(name: string): Promise<AsyncIterable<Buffer> | undefined>;
  /** Removes a file; does nothing when there is none. */
  remove(name: string): Promise<void>;
  /** Returns the files whose names begin with `prefix`, in no particular order. */
  list(prefix: string): AsyncIterable<StoredFile>;
  /** Removes the unfinished files of a folder, such as `keys/`. Another process that writes there meanwhile fails. */
  removeUnfinished(folder: string): Promise<void>;
}
