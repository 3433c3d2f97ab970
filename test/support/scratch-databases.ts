import { randomBytes } from 'node:crypto';
import { databaseUrl } from '../../src/control/server-urls.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { postgresUrl } from './test-server.ts';

/**
 * Returns a function that creates an empty database and returns its URL. In a `describe`: drops
 * them all at its end.
 */
export function useScratchDatabases(): () => Promise<string> {
  const made: string[] = [];
  after(() =>
    withConnection(postgresUrl(), async client => {
      for (const name of made) await client.query(`drop database ${name} with (force)`);
    }),
  );
  return async () => {
    const name = `scratch_${randomBytes(5).toString('hex')}`;
    await withConnection(postgresUrl(), client => client.query(`create database ${name}`));
    made.push(name);
    return databaseUrl(postgresUrl(), name);
  };
}
