import type pg from 'pg';

/**
 * Returns the parameters with which a client logs in: its configuration, where that is empty
 * the variables of the environment.
 */
export function connectionParametersOf(client: pg.Client): object {
  return (client as unknown as { connectionParameters: object }).connectionParameters;
}
