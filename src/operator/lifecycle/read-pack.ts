import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { type PackName, packNames } from './pack-names.ts';

/** The table that each pack fills. */
const tables: Readonly<Record<PackName, { table: string; resource: string; key: string }>> = {
  countries: { table: 'countries', resource: 'Country', key: 'CountryCode' },
  currencies: { table: 'currencies', resource: 'Currency', key: 'Code' },
  units: { table: 'units_of_measure', resource: 'UnitOfMeasure', key: 'Code' },
};

/** A row of a pack, under the field names of the API. */
export type PackRow = Readonly<Record<string, string | number | null>>;

/** Reference data of a public standard: `tenants/packs/<name>.json`. */
export interface Pack {
  readonly name: PackName;
  readonly title: string;
  /** The edition of the standard. */
  readonly edition: string;
  /** The source of the rows. */
  readonly source: string;
  /** SHA-256 of the rows as JSON without spaces, in hexadecimal. */
  readonly sha256: string;
  readonly rows: readonly PackRow[];
  readonly table: string;
  /** The name of the resource in audit entries. */
  readonly resource: string;
  /** The field with the code that no two rows share. */
  readonly key: string;
}

/**
 * Reads a pack.
 * @throws {OperatorError} when its rows do not have the checksum in the file
 */
export async function readPack(name: PackName): Promise<Pack> {
  const content = await readFile(
    new URL(`../../../tenants/packs/${name}.json`, import.meta.url),
    'utf8',
  );
  const file = JSON.parse(content) as Pick<
    Pack,
    'title' | 'edition' | 'source' | 'sha256' | 'rows'
  >;
  const sha256 = createHash('sha256').update(JSON.stringify(file.rows)).digest('hex');
  if (sha256 !== file.sha256) {
    throw new OperatorError(
      `The rows of tenants/packs/${name}.json have the SHA-256 ${sha256}, and the file says ` +
        `${file.sha256}. Get the file of this build again`,
    );
  }

  return { name, ...file, ...tables[name] };
}

/**
 * Checks the names of packs. Without names: all packs.
 * @throws {OperatorError} that lists the packs
 */
export function checkPackNames(names: readonly string[]): PackName[] {
  const unknown = names.find(name => !Object.hasOwn(tables, name));
  if (unknown !== undefined) {
    throw new OperatorError(
      `There is no pack "${unknown}". The packs are ${packNames.join(', ')}`,
      { usage: true },
    );
  }
  return packNames.filter(name => names.length === 0 || names.includes(name));
}
