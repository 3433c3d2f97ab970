import { OperatorError } from '../../lib/log/operator-error.ts';
import type { Queryable } from '../../lib/postgres/shared-connection.ts';
import { countText } from '../command/texts.ts';
import { type ArchiveName, parseArchiveName } from './target/archive-name.ts';
import type { StoredObject, Target } from './target/target.ts';

/** An archive that a target lists. */
export interface StoredArchive extends ArchiveName, StoredObject {}

/** The guid of a tenant; null: the control database. */
type Owner = string | null;

/**
 * The milliseconds by which the time in a name may be ahead of the control database, whose
 * server, and so its clock, can change.
 */
const maxAheadMs = 5 * 60_000;

/** Maximum archives that a message names. */
const maxNamed = 20;

/**
 * The archives of one installation in a target: the ledger. It has the archives that the target
 * listed, and follows the writes and removals of this process since.
 */
export class Listing {
  readonly #archives = new Map<string, StoredArchive>();
  readonly #owners = new Map<Owner, Map<string, StoredArchive>>();

  /** The tenants that have archives, by guid; null among them: the control database. */
  get owners(): readonly Owner[] {
    return [...this.#owners.keys()];
  }

  get size(): number {
    return this.#archives.size;
  }

  get(name: string): StoredArchive | undefined {
    return this.#archives.get(name);
  }

  /**
   * Returns the archives of a tenant, the newest first.
   * @param owner null: of the control database
   */
  of(owner: Owner): StoredArchive[] {
    return [...(this.#owners.get(owner)?.values() ?? [])].sort(compareNewestFirst);
  }

  /** Returns all archives, the newest first. */
  all(): StoredArchive[] {
    return [...this.#archives.values()].sort(compareNewestFirst);
  }

  add(archive: StoredArchive): void {
    const { name, tenant } = archive;
    const own = this.#owners.get(tenant) ?? new Map<string, StoredArchive>();

    this.#archives.set(name, archive);
    this.#owners.set(tenant, own.set(name, archive));
  }

  remove({ name, tenant }: ArchiveName): void {
    const own = this.#owners.get(tenant);

    this.#archives.delete(name);
    own?.delete(name);
    if (own?.size === 0) this.#owners.delete(tenant);
  }
}

/**
 * Lists the archives of an installation. Objects with other names are not archives, and are
 * left alone.
 * @throws {OperatorError} when the time in a name is in the future: until then it would be the
 *   newest archive
 */
export async function readListing(
  control: Queryable,
  target: Target,
  installation: string,
): Promise<Listing> {
  const listing = new Listing();
  for await (const object of target.list(`${installation}/`)) {
    const archive = parseArchiveName(object.name);
    if (archive) listing.add({ ...object, ...archive });
  }

  requirePast(target, listing, await readControlTime(control));

  return listing;
}

/** Returns the time of the control database, by which archives are named. */
export async function readControlTime(control: Queryable): Promise<Date> {
  const { rows } = await control.query<{ now: Date }>('select clock_timestamp() as now');

  return rows[0]?.now ?? new Date(Number.NaN);
}

function requirePast(target: Target, listing: Listing, now: Date): void {
  const ahead = listing
    .all()
    .filter(({ time }) => time.getTime() > now.getTime() + maxAheadMs)
    .map(({ name }) => name);
  if (ahead.length === 0) return;

  throw new OperatorError(
    `${target.description} has ${countText(ahead.length, 'archive')} from the future: ${ahead.slice(0, maxNamed).join(', ')}` +
      `${ahead.length > maxNamed ? ' …' : ''}, and the server of the control database says it is ${now.toISOString()}. Set its clock. ` +
      'If it is right now, a wrong clock or somebody else has chosen the names: move these objects away',
  );
}

function compareNewestFirst(one: ArchiveName, other: ArchiveName): number {
  return other.time.getTime() - one.time.getTime() || (one.name < other.name ? 1 : -1);
}
