import type { Statements } from '../../postgres/statements.ts';

/** A PostgreSQL server with the number of its tenants. Its URL is secret and left out. */
export interface ServerSummary {
  name: string;
  prefix: string;
  tenants: number;
  capacity: number | null;
}

/** Returns all servers, in the order in which they were added. */
export async function listServers({ statements }: { readonly statements: Statements }): Promise<ServerSummary[]> {
  return statements.execute(
    `select s.name, s.prefix, count(t.id)::int as tenants, s.capacity
       from servers s left join tenants t on t.server_id = s.id group by s.id order by s.id`,
  );
}
