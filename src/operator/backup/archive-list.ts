import type { Queryable } from '../../lib/postgres/shared-connection.ts';
import { storableText } from '../command/texts.ts';
import {
  type ArchiveRow,
  type FoundFact,
  type ListedBytes,
  readArchiveRows,
  recordFound,
  reviveArchives,
} from './archive-rows.ts';
import { parseArchiveName, tenantOfObject } from './target/archive-name.ts';
import type { StoredObject, Target } from './target/target.ts';

/** The guid of a tenant; null: the control database. */
export type Owner = string | null;

/** The objects of one folder of the target that have no row, or an unproved one. */
export interface StrayFolder {
  readonly folder: string;
  readonly objects: number;
  /** The size of all of them. */
  readonly bytes: number;
  /** The newest one, by the clock of the store. */
  readonly name: string;
  readonly size: number;
  /** In ISO 8601. */
  readonly modifiedAt: string;
}

/** Objects without a row that one statement compares with the rows of missing archives. */
const straysAtOnce = 1_000;
/** Maximum folders that are recorded for `doctor`. */
const maxFolders = 100;

/**
 * The archives of one installation in a target: the rows of the control database, beside one
 * listing of the target. It follows the writes and removals of this process since.
 */
export class ArchiveList {
  readonly #rows: Map<string, ArchiveRow>;
  readonly #complete: Map<Owner, Map<string, ArchiveRow>>;
  readonly #objects = new Map<string, StoredObject>();
  readonly #strays = new Map<string, StoredObject>();
  readonly #folders = new Set<string>();
  readonly #installation: string;
  /** The time of the store at the claim; undefined: not known. */
  storeTime: Date | undefined;

  constructor(installation: string, rows: readonly ArchiveRow[]) {
    this.#installation = installation;
    this.#rows = new Map(rows.map(row => [row.name, row]));
    this.#complete = new Map();
    for (const row of rows) {
      this.#index(row);
    }
  }

  /** The tenants whose folders have an object, by guid. */
  get tenantsWithObjects(): readonly string[] {
    return [...this.#folders];
  }

  /** The rows whose objects may be in the target, of any state. */
  get rows(): readonly ArchiveRow[] {
    return [...this.#rows.values()];
  }

  get(name: string): ArchiveRow | undefined {
    return this.#rows.get(name);
  }

  /** Returns the listed object of a row. */
  objectOf({ name }: Pick<ArchiveRow, 'name'>): StoredObject | undefined {
    return this.#objects.get(name);
  }

  /**
   * Returns the complete archives of a database, the newest first.
   * @param owner null: the control database
   */
  of(owner: Owner): ArchiveRow[] {
    return [...(this.#complete.get(owner)?.values() ?? [])].sort(compareNewestFirst);
  }

  /** Returns the complete archives of all databases, the newest first. */
  complete(): ArchiveRow[] {
    return this.rows.filter(({ state }) => state === 'complete').sort(compareNewestFirst);
  }

  /** Adds a row that has a state, in place of its former one. */
  put(row: ArchiveRow): void {
    this.#complete.get(row.tenant)?.delete(row.name);
    this.#rows.set(row.name, row);
    this.#index(row);
  }

  remove({ name, tenant }: Pick<ArchiveRow, 'name' | 'tenant'>): void {
    this.#rows.delete(name);
    this.#complete.get(tenant)?.delete(name);
    this.#objects.delete(name);
  }

  /** Adds an object of the target. */
  see(object: StoredObject): void {
    const { name } = object;
    const own = `${this.#installation}/`;
    if (name === `${own}writer.json`) this.storeTime = object.modifiedAt;
    if (name.startsWith(`${own}writer.json`)) return;

    const guid = tenantOfObject(name);
    if (guid !== undefined) this.#folders.add(guid);

    if (this.#rows.has(name)) this.#objects.set(name, object);
    else this.#strays.set(name, object);
  }

  /** The objects without a row. */
  get strays(): readonly StoredObject[] {
    return [...this.#strays.values()];
  }

  /**
   * Returns the objects without a row, and the unproved ones, by folder.
   * @param erased guids of the tenants whose folders were removed since the listing
   */
  strayFolders(erased: readonly string[]): StrayFolder[] {
    const prefixes = erased.map(guid => `${this.#installation}/tenants/${guid}/`);
    const unproved = this.rows.flatMap(row => {
      const object = row.state === 'unproved' ? this.objectOf(row) : undefined;
      return object ? [object] : [];
    });
    const left = [...this.strays, ...unproved].filter(
      ({ name }) => !prefixes.some(prefix => name.startsWith(prefix)),
    );
    const byFolder = Map.groupBy(left, ({ name }) => name.slice(0, name.lastIndexOf('/') + 1));

    return [...byFolder].slice(0, maxFolders).flatMap(([folder, objects]) => {
      const [newest] = objects.toSorted(
        (one, other) => other.modifiedAt.getTime() - one.modifiedAt.getTime(),
      );
      if (!newest) return [];

      return [
        {
          folder: storableText(folder),
          objects: objects.length,
          bytes: objects.reduce((sum, { size }) => sum + size, 0),
          name: storableText(newest.name),
          size: newest.size,
          modifiedAt: newest.modifiedAt.toISOString(),
        },
      ];
    });
  }

  /** Gives an object that had no row one. */
  adopt(row: ArchiveRow): void {
    const object = this.#strays.get(row.name);
    if (object) this.#objects.set(row.name, object);
    this.#strays.delete(row.name);
    this.put(row);
  }

  /**
   * Returns the complete archives that the target does not list as they were written, with what
   * it has instead of the newest one of each database.
   */
  missing(): { readonly row: ArchiveRow; readonly error: string | null }[] {
    return [...this.#complete.keys()].flatMap(owner =>
      this.of(owner).flatMap((row, index) => {
        const error = differenceOf(row, this.objectOf(row));
        if (error === undefined) return [];

        return [{ row, error: index === 0 ? error : null }];
      }),
    );
  }

  /** Returns complete archives whose checksum in the store is not known yet, with it. */
  unknownChecksums(): FoundFact[] {
    return this.rows.flatMap(row => {
      const object = this.objectOf(row);
      if (row.state !== 'complete' || row.checksum !== null || !object?.checksum) return [];

      return [listedBytes(object)];
    });
  }

  #index(row: ArchiveRow): void {
    if (row.state !== 'complete') return;

    const own = this.#complete.get(row.tenant) ?? new Map<string, ArchiveRow>();
    this.#complete.set(row.tenant, own.set(row.name, row));
  }
}

/**
 * Reads the rows of a target, and then lists it once. An object that is written meanwhile, by a
 * run at the same time, may appear to have no row.
 */
export async function readArchiveList(
  control: Queryable,
  target: Target,
  installation: string,
): Promise<ArchiveList> {
  const list = new ArchiveList(installation, await readArchiveRows(control, target));
  for await (const object of target.list(`${installation}/`)) {
    list.see(object);
  }

  return list;
}

/**
 * Brings the rows up to date with the listing: archives that it does not have are gone, and
 * those that it has again are complete.
 * @returns the newest archives of databases that the target has lost
 */
export async function settleListing(
  control: Queryable,
  target: Target,
  list: ArchiveList,
): Promise<ArchiveRow[]> {
  const strays = list.strays.filter(({ name }) => parseArchiveName(name)).map(listedBytes);
  for (let at = 0; at < strays.length; at += straysAtOnce) {
    const some = strays.slice(at, at + straysAtOnce);
    for (const row of await reviveArchives(control, target, some, 'gone')) {
      list.adopt(row);
    }
  }

  const missing = list.missing();
  for (const { row } of missing) {
    list.remove(row);
  }
  const gone = missing.map(({ row, error }) => ({ name: row.name, isGone: true, error }));
  await recordFound(control, target, [...gone, ...list.unknownChecksums()]);

  return missing.filter(({ error }) => error !== null).map(({ row }) => row);
}

/**
 * Describes how an object differs from its row.
 * @returns undefined when it does not
 */
export function differenceOf(
  { bytes, checksum }: ArchiveRow,
  object: StoredObject | undefined,
): string | undefined {
  if (!object) return 'the target does not list it';
  if (object.size !== bytes?.size) {
    return `it has ${object.size} bytes instead of ${bytes?.size}`;
  }
  if (checksum === null || object.checksum === undefined) return undefined;
  if (normalTag(object.checksum) === normalTag(checksum)) return undefined;

  return 'the store has another checksum of it';
}

export function compareNewestFirst(
  one: Pick<ArchiveRow, 'name' | 'time'>,
  other: Pick<ArchiveRow, 'name' | 'time'>,
): number {
  return other.time.getTime() - one.time.getTime() || (one.name < other.name ? 1 : -1);
}

/** Returns the facts of a listed object that are compared with its row. */
export function listedBytes({ name, size, checksum }: StoredObject): ListedBytes {
  return { name, size, checksum: checksum === undefined ? null : normalTag(checksum) };
}

/** Returns an ETag without what a proxy adds or removes. */
function normalTag(tag: string): string {
  return tag.replace(/^W\//, '').replaceAll('"', '');
}
