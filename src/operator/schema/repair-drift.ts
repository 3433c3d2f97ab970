import { quoteIdentifier as quote } from '../../lib/postgres/quote.ts';
import type { Difference } from '../../lib/postgres/schema-fingerprint.ts';

/**
 * The schema into which objects of others in `public` are put, so that their data is not lost.
 */
const kept = 'kept';

/**
 * Returns the statements that give an object the definition of the template. An object that the
 * template does not have is dropped if it holds no data, and else put into the schema `kept`.
 * @param group the group role of all tenants, which a definition calls `tenants`
 * @returns undefined for an object with data that is missing or has another definition
 */
function driftRepair({ object, found, wanted }: Difference, group: string): string[] | undefined {
  const [, kind = '', name = ''] = /^(rights on \w+|\w+) (.*)$/s.exec(object) ?? [];
  const [table = '', part = ''] = splitName(name);
  const ifFound = (statement: string): string[] => (found === undefined ? [] : [statement]);
  const ifWanted = (statement: string): string[] => (wanted === undefined ? [] : [statement]);
  const isForeign = wanted === undefined;

  switch (kind) {
    case 'index':
      return [...ifFound(`drop index if exists ${quote(name)}`), ...ifWanted(`${wanted}`)];
    case 'constraint':
      return [
        ...ifFound(`alter table ${quote(table)} drop constraint if exists ${quote(part)}`),
        ...ifWanted(`alter table ${quote(table)} add constraint ${quote(part)} ${wanted}`),
      ];
    case 'trigger':
      return [
        ...ifFound(`drop trigger if exists ${quote(part)} on ${quote(table)}`),
        ...ifWanted(`${wanted?.replace(/ \w$/, '')}`),
      ];
    case 'rule':
      return [
        ...ifFound(`drop rule if exists ${quote(part)} on ${quote(table)}`),
        ...ifWanted(`${wanted?.replace(/ \w$/, '')}`),
      ];
    case 'function':
      return isForeign ? keep(`alter routine ${name}`) : [`${wanted}`];
    case 'policy':
      return isForeign ? [`drop policy if exists ${quote(part)} on ${quote(table)}`] : undefined;
    case 'table':
      return isForeign ? keep(`alter table ${quote(name)}`) : undefined;
    case 'sequence':
      return isForeign ? keep(`alter sequence ${quote(name)}`) : undefined;
    case 'type':
      return isForeign ? keep(`alter type ${quote(name)}`) : undefined;
    case 'column':
      return isForeign ? keepColumn(table, part) : undefined;
    default:
      return rightsRepair(kind.replace('rights on ', ''), name, wanted, group);
  }
}

/**
 * A difference that is not part of another one, and the statements that undo it; undefined: no
 * statement can.
 */
interface IndependentDifference {
  readonly difference: Difference;
  readonly sql: string[] | undefined;
}

/**
 * Returns the differences of a database that are undone one by one, in the order of the repair.
 * The parts of a table, a type or a column that the template does not have (columns,
 * constraints, indexes, sequences, rights) are undone with it, and the index of a constraint
 * with the constraint.
 * @param group the group role of all tenants
 */
export function independentDifferences(
  differences: readonly Difference[],
  group: string,
): readonly IndependentDifference[] {
  const patterns = differences.map(partsOf).filter(each => each !== undefined);
  const belongs = ({ object, found = '' }: Difference): boolean =>
    patterns.some(
      ({ objects, definition }) =>
        objects.test(object) || (definition?.test(`${object}\n${found}`) ?? false),
    );

  return differences
    .filter(each => !belongs(each))
    .map(difference => ({ difference, sql: driftRepair(difference, group) }));
}

/**
 * Returns the prefix of the names of the parts of an object, which are undone with it;
 * undefined for an object without parts.
 */
function partsOf({
  object,
  wanted,
}: Difference): { objects: RegExp; definition?: RegExp } | undefined {
  const [, kind = '', name = ''] = /^(\w+) (.*)$/s.exec(object) ?? [];
  const [table = '', part = ''] = splitName(name).map(escaped);
  if (kind === 'constraint') return { objects: new RegExp(`^index ${part}$`) };
  if (wanted !== undefined) return undefined;

  if (kind === 'table' || kind === 'type') {
    const holder = escaped(name);
    return {
      objects: new RegExp(
        `^((column|constraint|trigger|rule|policy|rights on column) ${holder}\\.|rights on table ${holder} of ` +
          `|(sequence|rights on sequence) ${holder}_\\w+_seq( of |$))`,
      ),
      definition: new RegExp(`^index [^\\n]*\\n.* ON public\\."?${holder}"? `),
    };
  }
  if (kind === 'column') {
    return {
      objects: new RegExp(
        `^(rights on column ${table}\\.${part} of |(sequence|rights on sequence) ${table}_${part}_seq( of |$))`,
      ),
    };
  }

  return undefined;
}

/** Escapes a name for a regular expression. */
function escaped(name: string): string {
  return name.replace(/[^\w]/g, '\\$&');
}

function keep(alter: string): string[] {
  return [`create schema if not exists ${quote(kept)}`, `${alter} set schema ${quote(kept)}`];
}

/** Returns the statements that copy the table with the column, before the column is dropped. */
function keepColumn(table: string, column: string): string[] {
  return [
    `create schema if not exists ${quote(kept)}`,
    `create table ${quote(kept)}.${quote(`${table}.${column}`)} as table ${quote(table)}`,
    `alter table ${quote(table)} drop column ${quote(column)}`,
  ];
}

/** @param what `table`, `column`, `sequence`, `function` or `schema` */
function rightsRepair(
  what: string,
  name: string,
  wanted: string | undefined,
  group: string,
): string[] | undefined {
  const [, object = '', grantee = ''] = /^(.*) of (.*)$/s.exec(name) ?? [];
  const role =
    grantee === 'tenants' ? quote(group) : grantee === 'public' ? 'public' : quote(grantee);
  const [table = '', column = ''] = splitName(object);
  const place = {
    table: `table ${quote(object)}`,
    column: `table ${quote(table)}`,
    sequence: `sequence ${quote(object)}`,
    function: `function ${object}`,
    schema: `schema ${quote(object)}`,
  }[what];
  if (place === undefined) return undefined;

  const ofColumn = what === 'column' ? ` (${quote(column)})` : '';
  const revoke = `revoke all${ofColumn} on ${place} from ${role}`;
  if (wanted === undefined) return [revoke];

  const privileges = wanted.split(', ').map(each => `${each}${ofColumn}`);

  return [revoke, `grant ${privileges.join(', ')} on ${place} to ${role}`];
}

/**
 * Splits the name of a part of a table: `entities.entities_status_id_fkey`. No table has a full
 * stop in its name.
 */
function splitName(name: string): string[] {
  const at = name.indexOf('.');
  return [name.slice(0, at), name.slice(at + 1)];
}
