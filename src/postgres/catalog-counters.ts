import type pg from 'pg';
import { copiedCatalogs } from './catalog-statements.ts';
import { copyTexts } from './copy-texts.ts';
import { databaseOfPath } from './server-address.ts';

/** What PostgreSQL counts of the changes of the copied catalogs of one database. */
export interface CatalogCounters {
  /** Names the database, and the time since when its counters have only risen. */
  readonly source: string;
  /** True if the database had no other session, before the counters were read. */
  readonly isAlone: boolean;
  /** The rows of each catalog that ended transactions have inserted, updated and deleted. */
  readonly counted: readonly number[];
  /** The same of this session, as far as `counted` does not contain it yet: at least those of its transaction. */
  readonly own: readonly number[];
  /** The settings of roles and of the database that a session gets when it is opened. */
  readonly settings: string;
}

/**
 * The path of the file of `pg_class` contains the OID of the database. It costs less than a query of `pg_database`, which
 * a new session would have to plan.
 */
const path = `pg_relation_filepath('1259')`;
const databaseOid = `split_part(${path}, '/', -2)::oid`;

const counters = ['', 'xact_'].flatMap(kind =>
  ['inserted', 'updated', 'deleted'].map(change => `pg_stat_get_${kind}tuples_${change}(catalog)`),
);

// The order matters: the number of sessions is read before the counters.
const statements = [
  'copy pg_db_role_setting to stdout',
  `copy (select pg_stat_clear_snapshot(), pg_stat_get_db_numbackends(${databaseOid}) = 1, ${path}, pg_conf_load_time(),
                pg_stat_get_db_stat_reset_time(${databaseOid}), pg_stat_get_bgwriter_stat_reset_time()) to stdout`,
  `copy (select ${counters.join(', ')} from unnest('{${copiedCatalogs.join(',')}}'::oid[]) as catalog) to stdout`,
];

/**
 * Reads the counters of the copied catalogs, in one round trip.
 * @returns undefined if some sessions of the database do not count their changes
 */
export async function readCatalogCounters(client: pg.Client): Promise<CatalogCounters | undefined> {
  const [settings = [], [facts = ''] = [], rows = []] = await copyTexts(client, statements);
  const [, isAlone, ...source] = facts.split('\t');
  const database = databaseOfPath(source[0] ?? '');
  const sessionSettings = settings
    .map(line => line.split('\t'))
    .filter(([setting]) => setting === '0' || setting === database)
    .map(([setting, ...rest]) => [setting === '0' ? 'all' : 'own', ...rest].join(' '))
    .sort()
    .join('\n');
  if (/track_counts=/i.test(sessionSettings)) return undefined;
  const numbers = rows.map(row => row.split('\t').map(Number));
  const own = numbers.flatMap(row => row.slice(3));
  // A session that has counted changes of its own shows that the server counts.
  if (own.every(count => count === 0) && !(await countsChanges(client))) return undefined;
  return {
    source: source.join(' '),
    isAlone: isAlone === 't',
    counted: numbers.flatMap(row => row.slice(0, 3)),
    own,
    settings: sessionSettings,
  };
}

async function countsChanges(client: pg.Client): Promise<boolean> {
  const { rows } = await client.query<{ track_counts: string }>('show track_counts');
  return rows[0]?.track_counts === 'on';
}
