import { preparedStatement, type Statement } from '../../../lib/postgres/statement.ts';
import type { TableStatements } from '../../../lib/postgres/table-statements.ts';
import type { RequestContext } from '../../../tenancy/request-context.ts';

/** A resource that records of others refer to. */
interface ReferenceTarget {
  readonly table: TableStatements;
  readonly key: { readonly id: number } | { readonly code: string };
  /** The property with the unique code. */
  readonly unique?: string | undefined;
  readonly softDelete?: boolean;
  /** The kinds of records that may refer to a record: each adds itself when it is defined. */
  readonly referrers: Referrer[];
}

/** A kind of records that may refer to a record. */
export interface Referrer {
  /** The name of their resource. */
  readonly resource: string;
  /**
   * Counts those that refer to a record, and that the caller may read.
   * @param key the id of the record
   */
  readonly count: (key: unknown, context: RequestContext) => Promise<number>;
}

/** A property with the key of another record, or a list of keys. */
export interface Reference {
  readonly to: ReferenceTarget;
  /** The record that the property names, as in *is not an entity status*. */
  readonly noun: string;
  /**
   * The property of the other record that names it in an imported file, where its key is a
   * number. Default: its unique code.
   */
  readonly title?: string;
  /** The property of the view that shows the title. */
  readonly shownAs?: string;
  /** SQL of the key that a new record has without one. */
  readonly byDefault?: string;
}

export type References = Readonly<Record<string, Reference>>;

/** The ways in which a row names another record: by its key, by its title, or not at all. */
const namings = ['key', 'title', 'default'] as const;
type Naming = (typeof namings)[number];

/** A record that others refer to. */
export interface Referred {
  readonly key: string | number;
  readonly title: string | null;
}

/**
 * The records that rows refer to, as far as they have been looked up. A key or a title that no
 * record has is known by an empty list.
 */
export class ReferredRecords {
  readonly #references: References;
  readonly #known = new Map<string, Referred[]>();
  readonly #wanted = new Map<string, [property: string, naming: Naming, name: string]>();

  constructor(references: References) {
    this.#references = references;
  }

  /** Remembers what the next statement looks up. */
  want(property: string, naming: Naming, name = ''): void {
    const id = idOf(property, naming, name);
    if (!this.#known.has(id)) this.#wanted.set(id, [property, naming, name]);
  }

  find(property: string, naming: Naming, name = ''): readonly Referred[] {
    return this.#known.get(idOf(property, naming, name)) ?? [];
  }

  /**
   * Looks up what is wanted, all of it with one statement. It locks the records that it finds,
   * which are then not deleted before the record that refers to them commits.
   */
  async read(query: (statement: Statement<FoundRow>) => Promise<FoundRow[]>): Promise<void> {
    if (this.#wanted.size === 0) return;

    const rows = await query(this.#statement());
    for (const id of this.#wanted.keys()) this.#known.set(id, []);
    this.#wanted.clear();

    for (const { property, naming, name, key, title } of rows) {
      const isNumber = 'id' in (this.#references[property]?.to.key ?? {});
      const found = { key: isNumber ? Number(key) : key, title };
      this.#known.get(idOf(property, naming, name))?.push(found);
    }
  }

  /** Forgets all: their locks have gone, or there are too many. */
  clear(): void {
    this.#known.clear();
  }

  get size(): number {
    return this.#known.size;
  }

  #statement(): Statement<FoundRow> {
    const wanted = [...this.#wanted.values()];
    const values: unknown[] = [];
    const selects: string[] = [];

    for (const property of Object.keys(this.#references)) {
      for (const naming of namings) {
        const names = wanted
          .filter(each => each[0] === property && each[1] === naming)
          .map(([, , name]) => name);
        if (names.length === 0) continue;

        const select = this.#select(property, naming, `$${values.push(names)}`);
        selects.push(`select * from (${select}) s${selects.length}`);
      }
    }

    return preparedStatement(selects.join(' union all '), values);
  }

  #select(property: string, naming: Naming, names: string): string {
    const { to, title = to.unique, byDefault = 'null' } = this.#references[property]!;
    const { table, key, softDelete } = to;
    const isId = 'id' in key;
    const keyColumn = `t.${table.sourceOf(isId ? 'id' : key.code)}`;
    const titleColumn = title === undefined ? 'null' : `t.${table.sourceOf(title)}`;
    const condition = softDelete ? ' and not t.is_deleted' : '';
    const select = (name: string, from: string): string =>
      `select '${property}' as property, '${naming}' as naming, ${name} as name,
              ${keyColumn}::text as key, ${titleColumn} as title
         from ${from}${condition} for key share of t`;

    if (naming === 'key' && isId) {
      const ids = `${table.name} t where ${keyColumn} = any(${names}::bigint[])`;
      return select(`${keyColumn}::text`, ids);
    }

    const asked = `unnest(${names}::text[]) as n(name) join ${table.name} t`;
    if (naming === 'default') {
      return select('n.name', `${asked} on ${keyColumn} = ${byDefault} where true`);
    }

    const column = naming === 'key' ? keyColumn : titleColumn;
    return select('n.name', `${asked} on code_key(${column}) = code_key(n.name) where true`);
  }
}

interface FoundRow {
  readonly property: string;
  readonly naming: Naming;
  readonly name: string;
  readonly key: string;
  readonly title: string | null;
}

function idOf(property: string, naming: Naming, name: string): string {
  return `${property} ${naming} ${name}`;
}
