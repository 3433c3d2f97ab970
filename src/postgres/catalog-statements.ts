import type pg from 'pg';

/** The statement that copies the rows of a system catalog, and the order of their columns. */
export interface CopiedCatalog {
  readonly statement: string;
  /** True if each row defines an object, whose OID is the first column; false if that is the OID of the row's table. */
  readonly defines: boolean;
  /** How many of the first columns have OIDs of objects. */
  readonly oidColumns: number;
  /** True if other columns have expressions in PostgreSQL's internal form. */
  readonly hasExpressions: boolean;
}

interface Catalog {
  readonly name: string;
  /** The column with the OID of the row's object. */
  readonly key: string;
  /** The columns that are read; by default all. */
  readonly columns?: readonly string[];
  /** SQL that selects rows of a long catalog. Without it the whole catalog is read, which needs no planning. */
  readonly where?: string;
}

/** The OID of the schema `public` (`pg_namespace.dat`), which is PostgreSQL's own, but with changeable rights. */
export const publicSchema = '2200';
/** OIDs from here on are not of PostgreSQL's own objects. */
export const firstOid = 16_384;
/** The greatest OID, which no object has. */
const undefinedOid = 4_294_967_295;

/**
 * The catalogs behind a fingerprint of the schema, with the columns that it depends on. An OID in quotes has the type
 * of its column: PostgreSQL reads one operator instead of choosing from all of that name.
 */
const catalogs: readonly Catalog[] = [
  { name: 'pg_namespace', key: 'oid' },
  {
    name: 'pg_class',
    key: 'oid',
    columns: [
      ...['oid', 'relnamespace', 'relam', 'relowner', 'relname', 'relkind', 'relpersistence', 'relrowsecurity'],
      ...['relhasrules', 'reloptions', 'relacl'],
    ],
    where: `oid >= '${firstOid}' and relnamespace = '${publicSchema}'`,
  },
  {
    name: 'pg_type',
    key: 'oid',
    columns: [
      ...['oid', 'typnamespace', 'typrelid', 'typelem', 'typbasetype', 'typname', 'typtype', 'typtypmod'],
      'typdefault',
    ],
    where: `oid >= '${firstOid}'`,
  },
  { name: 'pg_proc', key: 'oid', where: `oid >= '${firstOid}' and pronamespace = '${publicSchema}'` },
  { name: 'pg_opclass', key: 'oid', columns: ['oid', 'opcmethod', 'opcnamespace', 'opcname'] },
  { name: 'pg_constraint', key: 'oid' },
  {
    name: 'pg_attribute',
    key: 'attrelid',
    columns: [
      ...['attrelid', 'atttypid', 'attcollation', 'attnum', 'attname', 'atttypmod', 'attnotnull', 'atthasdef'],
      ...['attidentity', 'attgenerated', 'attoptions', 'attacl'],
    ],
    where: `attrelid >= '${firstOid}' and attnum > 0 and not attisdropped`,
  },
  { name: 'pg_attrdef', key: 'oid' },
  { name: 'pg_index', key: 'indexrelid' },
  { name: 'pg_trigger', key: 'oid' },
  { name: 'pg_policy', key: 'oid' },
  { name: 'pg_sequence', key: 'seqrelid' },
  { name: 'pg_enum', key: 'oid' },
  { name: 'pg_extension', key: 'oid' },
];

/** Columns that PostgreSQL changes without a change of the schema. */
const ignoredColumns = new Set(['indcheckxmin']);
/** OIDs of roles, which all databases of a server share. */
const roleColumns = new Set(['nspowner', 'relowner', 'proowner', 'extowner', 'polroles']);
/** The column that is true for an object with a rule, such as a view: the rule is in none of these catalogs. */
const ruleColumn = 'relhasrules';
const oidTypes = new Set(['oid', 'oid[]', 'oidvector', 'regproc']);

/**
 * Returns the statements that copy the catalogs. Columns that only newer versions of PostgreSQL have are among them.
 */
export async function catalogStatements(client: pg.Client): Promise<CopiedCatalog[]> {
  const { rows } = await client.query<{ catalog: string; name: string; type: string }>(
    `select relname::text as catalog, attname::text as name, format_type(atttypid, null) as type
       from pg_attribute a join pg_class c on c.oid = attrelid
      where relnamespace = 'pg_catalog'::regnamespace and relname = any ($1) and attnum > 0 order by attnum`,
    [catalogs.map(({ name }) => name)],
  );
  const columnsOf = Map.groupBy(rows, ({ catalog }) => catalog);
  return catalogs.map(({ name, key, columns, where }) => {
    const read = (columnsOf.get(name) ?? []).filter(
      column => !ignoredColumns.has(column.name) && (columns?.includes(column.name) ?? true),
    );
    const isOid = (column: { name: string; type: string }) =>
      column.name === ruleColumn || (oidTypes.has(column.type) && !roleColumns.has(column.name));
    const oids = read.filter(isOid).sort((a, b) => Number(b.name === key) - Number(a.name === key));
    const expressions = read.filter(({ type }) => type === 'pg_node_tree');
    const others = read.filter(column => !isOid(column) && column.type !== 'pg_node_tree');
    const names = [...oids, ...others, ...expressions].map(column => column.name);
    const statement = where
      ? `copy (select ${names.map(column => cast(column)).join(', ')} from ${name} where ${where}) to stdout`
      : `copy ${name} (${names.join(', ')}) to stdout`;
    return { statement, defines: key === 'oid', oidColumns: oids.length, hasExpressions: expressions.length > 0 };
  });
}

/** A name of a function becomes its OID, and an object with a rule refers to an object that does not exist. */
function cast(column: string): string {
  if (column === ruleColumn) return `case when ${column} then '${undefinedOid}'::oid else '0' end`;
  return column === 'prosupport' ? `${column}::oid` : column;
}
