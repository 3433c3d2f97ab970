/**
 * The server row that all worlds of one test run share, so that one template serves the tenants
 * of all worlds.
 */
export const server = { name: 'default', prefix: 'test' };

/** Name of a control database at head, without tenants. */
export const controlTemplate = 'control_template';

/**
 * Settings of PostgreSQL for servers whose last commits a crash may lose. The limit of the
 * write-ahead log keeps the folder small.
 */
export const quickSettings = [
  'fsync=off',
  'synchronous_commit=off',
  'full_page_writes=off',
  'max_wal_size=256MB',
  'io_method=sync',
];

/** Returns the superuser URL of the suite's PostgreSQL. */
export function postgresUrl(): string {
  const url = process.env.TEST_POSTGRES_URL;
  if (!url) {
    throw new Error('TEST_POSTGRES_URL is not set: mochaGlobalSetup has not started PostgreSQL');
  }
  return url;
}

/** Returns the folder of the suite's PostgreSQL, which the run removes at its end. */
export function suiteFolder(): string {
  const folder = process.env.TEST_SERVER_FOLDER;
  if (!folder) {
    throw new Error('TEST_SERVER_FOLDER is not set: mochaGlobalSetup has not started PostgreSQL');
  }
  return folder;
}
