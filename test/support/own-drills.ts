import pg from 'pg';
import { postgresUrl } from './test-server.ts';
import { use } from './use.ts';

/** Any number that no other lock of the database `postgres` has. */
const lock = 7_244_611;

/**
 * Lets the drills of one `describe` at a time run on the server that all worlds share: each
 * drill first drops the databases that killed drills have left there, and worlds do not know
 * of each other.
 */
export function useOwnDrills(): void {
  use(async () => {
    const client = new pg.Client(postgresUrl());
    await client.connect();
    await client.query('select pg_advisory_lock($1)', [lock]);
    return { close: () => client.end() };
  });
}
