/**
 * Returns the name of an archive in its target, such as `tenants/<guid>/20260131T235959Z-<id>.archive`. Names of one
 * database sort by time.
 * @param tenant the guid of the tenant; null: the control database
 */
export function archiveFile(tenant: string | null, id: string, at: Date): string {
  const time = at.toISOString().replace(/[-:]|\.\d+/g, '');
  return `${tenant === null ? 'control' : `tenants/${tenant}`}/${time}-${id}.archive`;
}

const uuid = '[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}';
const archiveName = new RegExp(`^(?:control|tenants/(${uuid}))/\\d{8}T\\d{6}Z-(${uuid})\\.archive$`);

/** What the name of an archive says. */
export interface NamedArchive {
  readonly id: string;
  /** The guid of the tenant; null: the control database. */
  readonly tenant: string | null;
}

/** @returns undefined for a name that no archive has, such as one with an impossible time */
export function parseArchiveName(file: string): NamedArchive | undefined {
  const [, tenant = null, id] = archiveName.exec(file) ?? [];
  if (id === undefined) return undefined;
  const at = timeInName(file);
  return !Number.isNaN(at.getTime()) && archiveFile(tenant, id, at) === file ? { id, tenant } : undefined;
}

/** Returns the time in the name of an archive, which anybody who can write to the target can change. */
export function timeInName(file: string): Date {
  return new Date(file.replace(/^.*\/(....)(..)(..T..)(..)(..Z)-.*/, '$1-$2-$3:$4:$5'));
}

/** Returns the id in the name of an archive of the control database. @returns undefined for another name */
export function controlArchiveId(file: string): string | undefined {
  const named = parseArchiveName(file);
  return named?.tenant === null ? named.id : undefined;
}
