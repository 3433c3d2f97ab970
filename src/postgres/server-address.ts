/** Host and port of a URL's server; for a Unix socket, its folder and port. */
export function serverAddress(url: string): string {
  const { hostname, port, searchParams } = new URL(url);
  return `${searchParams.get('host') ?? hostname}:${searchParams.get('port') ?? (port || '5432')}`;
}

/**
 * An SQL expression that names one database of one run of one server: the same text whatever address or session asks.
 * Other ways to write it cost a new connection three times as much.
 */
export function sourceExpression(database: string): string {
  return `concat(pg_postmaster_start_time() at time zone 'UTC', ' ', ${database})`;
}
