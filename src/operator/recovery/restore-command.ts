/**
 * The commands that list the archives of a tenant, and restore one of them.
 * @param destination the option that says where the data goes, such as `--lost`; empty: beside the tenant
 */
export function restoreCommand(slug: string, destination: string): string {
  return `npx backoffice backup list ${slug}; npx backoffice restore ${slug} --archive <id> ${destination}`.trim();
}
