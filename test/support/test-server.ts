/** What all worlds of one test run share: the tenants of all of them are copied from one template. */
export const server = { name: 'default', prefix: 'test' };

/** A control database at head, without tenants. */
export const controlTemplate = 'control_template';

/** The suite's PostgreSQL, as superuser. */
export function postgresUrl(): string {
  const url = process.env.TEST_POSTGRES_URL;
  if (!url) throw new Error('the suite has not started its PostgreSQL');
  return url;
}
