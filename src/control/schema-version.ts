/**
 * The version of a tenant's schema. Versions and builds are named by a migration, whose name
 * begins with its number.
 */
export interface SchemaVersion {
  /** The last migration of the database; null while that is not known. */
  readonly schemaVersion: string | null;
  /**
   * The oldest build that can serve the schema: the last migration with which older builds
   * cannot go on.
   */
  readonly compatibleFrom: string | null;
}

/**
 * Returns true if a build can serve a schema: at the last migration of the build, or after
 * later migrations that are all compatible with the build before them.
 * @param head the last migration of the build
 */
export function canServe(head: string, { schemaVersion, compatibleFrom }: SchemaVersion): boolean {
  if (schemaVersion === null) return false;
  return (
    schemaVersion === head ||
    (schemaVersion > head && compatibleFrom !== null && compatibleFrom <= head)
  );
}
