import { createHash } from 'node:crypto';
import pg from 'pg';
import { type CopiedCatalog, firstOid, publicSchema } from './catalog-statements.ts';

/**
 * Computes a digest of the catalog rows behind the fingerprint of a schema; inside a transaction, including its
 * changes. It costs a fraction of a fingerprint, because PostgreSQL plans no join and prints no definition.
 *
 * Two databases of one server with equal digests have the same fingerprint:
 *
 *   I1 (labels) Every OID of an object is replaced by a label: the position of the row that defines the object. Without
 *      such a row there is no digest. So equal digests prove a one-to-one mapping between the objects of the two
 *      databases that keeps every column and every reference.
 *   I2 (completeness) A fingerprint depends on rows of these catalogs, on objects of PostgreSQL itself, and on roles,
 *      both of which the databases of a server share. Only the rules of views are in another catalog: a database with a
 *      rule has no digest.
 *
 * The reverse does not hold: databases with the same fingerprint have different digests if their objects were created
 * in another order.
 * @returns undefined if the database has an object that these catalogs do not define
 */
export async function catalogDigest(
  client: pg.Client,
  catalogs: readonly CopiedCatalog[],
): Promise<string | undefined> {
  const statements = catalogs.map(({ statement }) => statement);
  const tables = (await copyRows(client, statements)).map(sortRows);
  const labels = new Map<string, string>();
  for (const [index, rows] of tables.entries())
    if (catalogs[index]?.defines) for (const { key } of rows) labels.set(key, `#${labels.size}`);

  const hash = createHash('sha256');
  try {
    for (const [index, rows] of tables.entries()) {
      const catalog = catalogs[index];
      if (!catalog) continue;
      // Rows of another table, such as the one with the long values of a table, are not part of the schema.
      const labelled = rows.filter(({ key }) => labels.has(key)).map(({ line }) => labelRow(line, catalog, labels));
      hash.update(`${labelled.join('\n')}\n\n`);
    }
  } catch (error) {
    if (error instanceof UndefinedObject) return undefined;
    throw error;
  }
  return hash.digest('hex');
}

/**
 * Runs `copy … to stdout` statements in one round trip. PostgreSQL copies a table without planning, which costs a new
 * session more than reading a small one.
 * @returns for each statement, its lines in PostgreSQL's text format, but those that are the same in every database
 */
function copyRows(client: pg.Client, statements: readonly string[]): Promise<string[][]> {
  const lines: string[][] = statements.map(() => []);
  let statement = 0;
  return new Promise((resolve, reject) => {
    const query = Object.assign(new pg.Query(statements.join(';\n')), {
      // A line with its line feed, in a buffer that the connection uses again.
      handleCopyData: ({ chunk }: { chunk: Buffer }) => {
        if (mayDiffer(chunk)) lines[statement]?.push(chunk.toString('utf8', 0, chunk.length - 1));
      },
      handleCommandComplete: () => statement++,
    });
    query.on('error', reject);
    query.on('end', () => resolve(lines));
    client.query(query);
  });
}

/** An OID whose object no copied row defines. */
class UndefinedObject extends Error {}

/** Returns whether a row may differ between databases: not if its object is one of PostgreSQL's own. */
function mayDiffer(line: Buffer): boolean {
  const oid = line.toString('latin1', 0, line.indexOf('\t'));
  return Number(oid) >= firstOid || oid === publicSchema;
}

/** Returns the rows with their first column, in the order in which their objects were created. */
function sortRows(lines: readonly string[]): { key: string; line: string }[] {
  const rows = lines.map(line => ({ key: line.slice(0, line.indexOf('\t')), line }));
  return rows.sort((a, b) => Number(a.key) - Number(b.key) || (a.line < b.line ? -1 : 1));
}

/** Replaces the OIDs of a row by labels. @throws {UndefinedObject} */
function labelRow(
  line: string,
  { oidColumns, hasExpressions }: CopiedCatalog,
  labels: ReadonlyMap<string, string>,
): string {
  const label = (oid: string): string => labels.get(oid) ?? refuse(oid);
  let end = -1;
  for (let column = 0; column < oidColumns; column++) end = line.indexOf('\t', end + 1);
  let rest = line.slice(end);
  if (hasExpressions && rest.includes('{')) rest = labelExpressions(rest, label);
  return line.slice(0, end).replace(/\d{5,}/g, label) + rest.replace(generatedName, '$1');
}

/** PostgreSQL names the triggers of a foreign key by their OIDs. */
const generatedName = /\t(RI_ConstraintTrigger_[ac]_)\d+/;

function refuse(oid: string): string {
  if (Number(oid) >= firstOid) throw new UndefinedObject(oid);
  return oid;
}

/**
 * Constants that are OIDs: of the types regproc, regclass, regtype and so on (`pg_type.dat`). Their value is a list of
 * signed bytes, the lowest first.
 */
const oidConstants =
  /:consttype (?:24|2202|2203|2204|2205|2206|3734|3769|4089|4096|4191) ([^[\]]*)\[ ((?:-?\d+ ){4})((?:0 ){4})\]/g;
/** Fields whose value is a number that is not an OID. */
const isPlainNumber = /typmod$|^location$/;

/** Replaces the OIDs of expressions: fields of their nodes, lists such as `(o 1 2)`, and constants. */
function labelExpressions(text: string, label: (oid: string) => string): string {
  return text
    .replace(oidConstants, (_, fields: string, bytes: string) => {
      const oid = Buffer.from(bytes.trim().split(' ').map(Number)).readUInt32LE();
      return `:constant ${fields}${label(String(oid))}`;
    })
    .replace(/:(\w+) (\d{5,})/g, (all, field: string, number: string) =>
      isPlainNumber.test(field) ? all : `:${field} ${label(number)}`,
    )
    .replace(/\(o [\d ]+\)/g, list => list.replace(/\d{5,}/g, label));
}
