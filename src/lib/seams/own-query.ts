import pg from 'pg';

/** Called with the error, or the rows, of a query. */
export type QueryCallback<Row> = (error: Error | null, rows: Row[]) => void;

/** The methods of a query that `pg` calls, as far as its types lack them. */
export interface OwnQuery<Row> extends pg.Submittable {
  name: string;
  values: unknown[];
  callback: QueryCallback<Row>;
  prepare(connection: object): void;
  handleError(error: Error, connection: object): void;
}

/** The base class of a query that handles the messages of the server itself. */
export const OwnQuery = pg.Query as unknown as new <Row>(text: string) => OwnQuery<Row>;
