import { backfill } from '../../migrations/tenant/sql.ts';

/** The schema of the newest release, which clients know. */
export interface ReleasedSchema {
  /** The columns of each table. */
  readonly columns: ReadonlyMap<string, ReadonlySet<string>>;
  /** The columns of each table that clients see, or by which the feed is ordered. */
  readonly shown: ReadonlyMap<string, ReadonlySet<string>>;
}

const update =
  /\bupdate\s+(?:only\s+)?(?<table>[\w."%]+)(?:\s*\*)?(?:\s+(?:as\s+)?[\w"]+)?\s+set\b/gi;
const merge = /\bmerge\s+into\s+(?:only\s+)?(?<table>[\w."%]+)/gi;

/** Statements that change rows; `table` is the table that one names. */
const rowChanges = {
  up: [
    update,
    /\bdelete\s+from\s+(?:only\s+)?(?<table>[\w."%]+)/gi,
    merge,
    /\btruncate\s+(?:table\s+)?(?:only\s+)?(?!on\b|or\b|table\b|only\b)(?<table>[\w."%]+)/gi,
    /\binsert\s+into\s+(?<table>[\w."%]+)(?:(?!\bvalues\b)[^;])*\bselect\b/gi,
    /\binsert\s+into\s+(?<table>[\w."%]+)[^;]*\bdo\s+update\b/gi,
    /\bcopy\s+(?<table>[\w."%]+)[^;]*\bfrom\b/gi,
  ],
  /** A reversal removes the rows that the migration has added. */
  down: [update, merge],
};

/**
 * Returns the statements of a tenant migration that change existing rows in another way than by
 * `backfill`, and the back-filled columns that clients see. It reads the text: a function that
 * the migration calls is not judged.
 */
export function refusedRowChanges(
  { up, down }: { readonly up: readonly string[]; readonly down: readonly string[] },
  released: ReleasedSchema,
): string[] {
  return [
    ...up.flatMap(text => refusalsOf(text, 'up', released)),
    ...down.flatMap(text => refusalsOf(text, 'down', released)),
  ];
}

function refusalsOf(
  text: string,
  direction: 'up' | 'down',
  { columns, shown }: ReleasedSchema,
): string[] {
  const filled = backfillIn(text);
  if (filled) {
    const { table, sql } = filled;
    if (executed(sql).includes(';')) return [`${table}: a back-fill is one statement`];

    return columnsSet(executed(sql))
      .filter(column => shown.get(table)?.has(column) && columns.get(table)?.has(column))
      .map(column => `${table}.${column}: clients see the column`);
  }

  const statements = executed(text);
  const refused = rowChanges[direction].flatMap(pattern =>
    [...statements.matchAll(pattern)]
      .map(({ groups }) => (groups?.table ?? '').replaceAll('"', '').replace(/^public\./i, ''))
      .filter(table => /\W/.test(table) || columns.has(table.toLowerCase()))
      .map(table => `${table}: rows are changed without backfill`),
  );
  const isTurnedOff = /\bdisable\s+trigger\b|\bsession_replication_role\b/i.test(statements);

  return [...new Set(isTurnedOff ? [...refused, 'triggers are turned off'] : refused)];
}

/** Returns the arguments of the `backfill` that has returned a text. */
function backfillIn(text: string): { table: string; sql: string } | undefined {
  const [, table = ''] = /alter table (\w+) disable trigger/.exec(text) ?? [];
  const [before = '', after = ''] = backfill(table, `update ${table} \n`).split(
    `update ${table} \n`,
  );
  if (!text.startsWith(before) || !text.endsWith(after)) return undefined;

  return { table, sql: text.slice(before.length, text.length - after.length) };
}

/**
 * Returns what a text executes at once: without comments, literals and the bodies of functions.
 * The literals in a block `do` stay, because it may execute them.
 */
function executed(text: string): string {
  const body = /\$(\w*)\$([\s\S]*?)\$\1\$/g;
  const withBodies = text.replace(body, (_, _tag, content: string, at: number) => {
    const statement = text.slice(text.lastIndexOf(';', at) + 1, at);
    if (/\bdo\s*(language\s+\w+\s*)?$/i.test(statement)) return content.replaceAll("'", ' ');
    return "''";
  });

  return withBodies
    .replace(/--.*$/gm, ' ')
    .replace(/\/\*[\s\S]*?\*\//g, ' ')
    .replace(/'(?:[^']|'')*'/g, "''");
}

/** Returns the columns that an `update` without literals sets. */
function columnsSet(update: string): string[] {
  const [, assignments = ''] = /\bset\b([\s\S]*)/i.exec(update) ?? [];
  // Without what stands in parentheses, a comma separates assignments, and `from` ends them.
  const names = assignments
    .replace(/^\s*\(([^()]*)\)\s*=/, '$1 =')
    .replace(/,\s*\(([^()]*)\)\s*=/g, ', $1 =');
  let flat = names;
  while (/\([^()]*\)/.test(flat)) flat = flat.replace(/\([^()]*\)/g, ' ');

  const [list = ''] = flat.replace(/\bdistinct\s+from\b/gi, ' ').split(/\b(?:from|where)\b/i);
  return list
    .split(',')
    .map(each => each.split('=')[0]?.trim().replaceAll('"', '').toLowerCase() ?? '')
    .filter(name => name !== '');
}
