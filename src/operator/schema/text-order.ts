import type pg from 'pg';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';
import { quoteLiteral } from '../../lib/postgres/quote.ts';
import type { Queryable } from '../../lib/postgres/shared-connection.ts';

/*
 * Every database of this project orders its texts by code point, and knows the same pairs of
 * capital and small letters, whatever the default of its server: so a list has one order, a
 * page goes on where the last one ended after a move to another server, and two codes are the
 * same code on every server. No version of such an order changes, so no index has to be made
 * anew after an update of the operating system.
 */

/** Texts in the order of their code points, which no language has. */
const orderedTexts = ['10', '9', 'Aruba', 'Zebra', '_x', 'a b', 'ab', 'apple', 'Åland', '￥', '😀'];

/** Letters whose lower case differs between locales, and letters of several scripts. */
const letters = 'IİıſßÅĐΑΣẞÇǅЖ';
/** Their lower case in Unicode, letter by letter, without the rules of a language. */
const lowerLetters = 'iiıſßåđασßçǆж';
/** Their lower case in the locale `C`, which knows the letters of ASCII only. */
const lowerAscii = letters.replace('I', 'i');

/** The order and the lower case of texts, as a database has them. */
export interface TextOrder {
  readonly lowered: string;
  readonly texts: string[];
}

/**
 * Returns SQL that reads the order and the lower case of texts.
 * @param collation SQL; absent: that of the database
 */
function readSql(collation?: string): string {
  const collate = collation === undefined ? '' : ` collate ${collation}`;
  // The texts come in the reverse order, so that no result is right by accident.
  const texts = orderedTexts.toReversed().map(quoteLiteral);

  return `
    select lower(${quoteLiteral(letters)}${collate}) as lowered,
           array(select text from unnest(array[${texts}]) as given (text) order by text${collate}) as texts`;
}

/** Reads the order and the lower case of the texts of a database. */
export async function readTextOrder(statements: Queryable): Promise<TextOrder> {
  const { rows } = await statements.query<TextOrder>(readSql());
  return rows[0] as TextOrder;
}

/**
 * Returns how the texts of a database differ from those of every database of this project;
 * undefined if they do not.
 * @param takesAscii true if lower case may be known of the letters of ASCII only, as in the
 *   locale `C`: a control database has no codes
 */
export function textOrderFault(
  { lowered, texts }: TextOrder,
  { takesAscii = false }: { takesAscii?: boolean } = {},
): string | undefined {
  if (texts.some((text, index) => text !== orderedTexts[index])) {
    return `orders texts by a language (${texts.join(', ')}), and not by code point`;
  }
  if (lowered === lowerLetters || (takesAscii && lowered === lowerAscii)) return undefined;

  return `knows other pairs of capital and small letters than Unicode (of ${letters}, the small letters are ${lowered})`;
}

/** SQL that is true for a row of `pg_database` whose texts are ordered by code point. */
export const isInCodePointOrder = `
  (datlocprovider = 'b' or datlocprovider = 'c' and datcollate in ('C', 'POSIX', 'C.UTF-8', 'C.utf8'))`;

/** The first version of PostgreSQL that has the locale `C.UTF-8` of its own. */
const builtinSince = 170_000;

/**
 * Returns the options of `create database` for an empty database with this order of texts,
 * whatever the default of the server.
 * @param client connected to the server, and in no transaction
 * @throws {OperatorError} when the server cannot have such a database
 */
export async function newDatabaseOptions(client: pg.Client): Promise<string> {
  const { rows } = await client.query<{ version: number; compares: boolean }>(
    `select current_setting('server_version_num')::int as version,
            getdatabaseencoding() = 'UTF8' and has_database_privilege(current_database(), 'temporary') as compares`,
  );
  const { version, compares } = rows[0] ?? { version: 0, compares: false };
  const locale = await (version >= builtinSince ? findBuiltin : findLibc)(client, compares);

  return `template template0 encoding 'UTF8' ${locale}`;
}

/** @param compares false if no text of the connected database can be compared */
async function findBuiltin(client: pg.Client, compares: boolean): Promise<string> {
  const { rows } = compares
    ? await client.query<TextOrder>(readSql('pg_catalog.pg_c_utf8'))
    : { rows: [] };
  const fault = rows[0] && textOrderFault(rows[0]);
  if (fault !== undefined) {
    throw new OperatorError(
      `The locale C.UTF-8 of this PostgreSQL ${fault}. Use a PostgreSQL that has it as postgresql.org publishes it`,
    );
  }

  return `locale_provider builtin builtin_locale 'C.UTF-8' locale 'C'`;
}

/**
 * Finds a locale of the machine of the server, for a version of PostgreSQL that has none of its
 * own: the order is that of `C`, and the pairs of letters are those of the locale.
 * @param compares false if no locale can be compared: `create database` then says whether there
 *   is one
 */
async function findLibc(client: pg.Client, compares: boolean): Promise<string> {
  const { rows } = await client.query<{ name: string }>(
    `select distinct collctype as name from pg_collation
      where collprovider = 'c' and collencoding = pg_char_to_encoding('UTF8') order by 1`,
  );
  const names = new Set(['C.UTF-8', 'C.utf8', ...rows.map(({ name }) => name)]);

  for (const name of names) {
    const isRight = !compares || (await isRightLibc(client, name));
    if (isRight) return `locale_provider libc lc_collate 'C' lc_ctype ${quoteLiteral(name)}`;
  }

  throw new OperatorError(
    'PostgreSQL has no locale of its own before version 17, and the machine of this server has none that knows the ' +
      'pairs of capital and small letters of Unicode. Install C.UTF-8 or en_US.UTF-8 there (on Debian: apt-get ' +
      `install locales-all), and restart PostgreSQL; a superuser makes others known by: select pg_import_system_collations('pg_catalog')`,
  );
}

/** The SQLSTATE of a locale that the machine of the server does not have. */
const noSuchLocale = '22023';

/** Compares a locale by a collation that is gone with its transaction. */
async function isRightLibc(client: pg.Client, name: string): Promise<boolean> {
  await client.query('begin');
  try {
    await client.query(
      `create collation pg_temp.compared (provider = libc, lc_collate = 'C', lc_ctype = ${quoteLiteral(name)})`,
    );
    const { rows } = await client.query<TextOrder>(readSql('pg_temp.compared'));
    return rows[0] !== undefined && textOrderFault(rows[0]) === undefined;
  } catch (error) {
    if (sqlState(error) !== noSuchLocale) throw error;
    return false;
  } finally {
    await client.query('rollback');
  }
}
