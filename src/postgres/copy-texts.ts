import pg from 'pg';

/**
 * Runs statements in one round trip, and returns the rows that each `copy … to stdout` sends, as PostgreSQL's text
 * format has them. PostgreSQL copies a table without planning, which costs a new session more than reading a small one.
 * @param accepts false for a line that is not needed
 * @returns the lines of each statement; none for a statement that copies nothing
 */
export function copyTexts(
  client: pg.Client,
  statements: readonly string[],
  accepts: (line: Buffer) => boolean = () => true,
): Promise<string[][]> {
  const lines: string[][] = statements.map(() => []);
  let statement = 0;
  return new Promise((resolve, reject) => {
    const query = Object.assign(new pg.Query(statements.join(';\n')), {
      // A line with its line feed, in a buffer that the connection uses again.
      handleCopyData: ({ chunk }: { chunk: Buffer }) => {
        if (accepts(chunk)) lines[statement]?.push(chunk.toString('utf8', 0, chunk.length - 1));
      },
      handleCommandComplete: () => statement++,
    });
    query.on('error', reject);
    query.on('end', () => resolve(lines));
    client.query(query);
  });
}
