/**
 * The objects of a schema with their definitions, as `schemaObjects` returns them: `column
 * labels.title` → `text`.
 */
type SchemaObjects = ReadonlyMap<string, string>;

/**
 * Returns the changes of a schema that a build without them may not survive, as `column
 * labels.title is dropped`. It judges what the catalogs show:
 * 1. Everything that the build can name goes on to exist, with the same types and at least the
 *    same privileges. It may lose a check and an index that is not unique, because no statement
 *    needs them.
 * 2. A statement of the build that succeeded still does. So what is new on an existing table
 *    refuses no row that lacks the new columns: they have a default or may be null, and a new
 *    constraint or unique index names only new columns.
 *
 * It cannot judge the effect of a changed function, trigger or view, and changes of data. The
 * drill of the build before tests them by its own contract tests.
 */
export function incompatibleChanges(before: SchemaObjects, after: SchemaObjects): string[] {
  return [
    ...[...before].flatMap(([name, definition]) => lossOf(name, definition, after.get(name))),
    ...[...after]
      .filter(([name]) => !before.has(name))
      .flatMap(([name, definition]) => burdenOf(name, definition)),
  ];

  /** Judges a new object. */
  function burdenOf(name: string, definition: string): string[] {
    const [kind = ''] = name.split(' ');
    const table = tableOf(name, definition);
    if (!before.has(`table ${table}`)) return [];
    if (kind === 'column' && /\bnot null\b/.test(definition) && !hasValue(definition)) {
      return [`${name} needs a value: ${definition}`];
    }
    if (kind === 'constraint' && isRestricting(table, definition)) {
      return [`${name} may refuse a row of the build before: ${definition}`];
    }
    if (
      kind === 'index' &&
      /^CREATE UNIQUE /.test(definition) &&
      isRestricting(table, definition)
    ) {
      return [`${name} may refuse a row of the build before: ${definition}`];
    }
    if (kind === 'policy') return [`${name} may hide a row from the build before`];
    return [];
  }

  /**
   * Returns true unless each row without values for the new columns satisfies the constraint or
   * unique index.
   */
  function isRestricting(table: string, definition: string): boolean {
    const columns = columnsIn(after, table).filter(column =>
      new RegExp(`\\b${column}\\b`).test(definition),
    );
    const added = columns.filter(column => !before.has(`column ${table}.${column}`));
    const isNullWithout = (column: string): boolean =>
      !hasValue(after.get(`column ${table}.${column}`) ?? '');
    // Unique values and references hold as soon as one of their columns is null.
    if (!/^CHECK /.test(definition)) {
      return /NULLS NOT DISTINCT/.test(definition) || !added.some(isNullWithout);
    }
    // A check of new columns holds for their defaults: the migration tests it with the existing
    // rows.
    return (
      columns.length === 0 || added.length < columns.length || /NOT NULL|NOT VALID/.test(definition)
    );
  }
}

/** Judges an existing object. */
function lossOf(name: string, before: string, after: string | undefined): string[] {
  const [kind = ''] = name.split(' ');
  if (after === before) return [];
  if (after === undefined) {
    const isUnneeded =
      (kind === 'constraint' && /^CHECK /.test(before)) ||
      (kind === 'index' && !/UNIQUE/.test(before));
    return isUnneeded ? [] : [`${name} is dropped`];
  }
  const isAllowed =
    (kind === 'function' && signatureOf(before) === signatureOf(after)) ||
    (kind === 'index' && ![before, after].some(index => /UNIQUE/.test(index))) ||
    (kind === 'trigger' && after.endsWith(' O') === before.endsWith(' O')) ||
    (kind === 'table' && /^[vm] /.test(before) && /^[vm] /.test(after)) ||
    (kind === 'rights' &&
      before.split(', ').every(privilege => after.split(', ').includes(privilege)));
  return isAllowed ? [] : [`${name} is changed: ${before} → ${after}`];
}

/**
 * The definition of a function without its body: name, parameters, result, rights and settings.
 */
function signatureOf(definition: string): string {
  return definition.replace(/\bAS \$\w*\$[\s\S]*$/, '');
}

/** Returns true if a column gets a value when a row is inserted without one. */
function hasValue(column: string): boolean {
  return /\b(default|identity|generated) /.test(column);
}

/** The table of a column, constraint, index, trigger or policy. */
function tableOf(name: string, definition: string): string {
  if (name.startsWith('index ')) {
    return / ON (?:ONLY )?(?:public\.)?(\w+) /.exec(definition)?.[1] ?? '';
  }
  return /^\w+ ([^.]+)\./.exec(name)?.[1] ?? '';
}

function columnsIn(objects: SchemaObjects, table: string): string[] {
  const prefix = `column ${table}.`;
  return [...objects.keys()]
    .filter(name => name.startsWith(prefix))
    .map(name => name.slice(prefix.length));
}
