import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { withConnection } from '../../src/lib/postgres/connection.ts';

/** A default of a server, as the options of `create database`. */
export interface DefaultLocale {
  readonly name: string;
  readonly options: string;
  /** The same in the catalog of databases. */
  readonly catalog: string;
}

const icu = (locale: string): DefaultLocale => ({
  name: `ICU ${locale}`,
  options: `locale_provider icu icu_locale '${locale}' locale 'C'`,
  catalog: `datlocprovider = 'i', datlocale = '${locale}', datcollate = 'C', datctype = 'C'`,
});

const libc = (locale: string): DefaultLocale => ({
  name: locale,
  options: `locale_provider libc locale '${locale}'`,
  catalog: `datlocprovider = 'c', datlocale = null, datcollate = '${locale}', datctype = '${locale}'`,
});

/**
 * Returns the defaults of servers as people have them, in which texts have the order of a
 * language: those of ICU, which PostgreSQL brings, and those of this machine.
 */
export async function languageLocales(): Promise<DefaultLocale[]> {
  const installed = await promisify(execFile)('locale', ['-a']).then(
    ({ stdout }) => stdout.split('\n'),
    (): string[] => [],
  );
  const names = ['en_US.utf8', 'tr_TR.utf8'].filter(name => installed.includes(name));

  return [icu('en-US'), icu('tr'), ...names.map(libc)];
}

/** The default of a server that `initdb --locale=C` makes. */
export const localeC = libc('C');

/**
 * Gives a server a default as `initdb` would: new databases that name no locale have it. The
 * texts of the catalogs have an order of their own, in every locale.
 * @param url of the superuser
 */
export async function setDefaultLocale(url: string, { catalog }: DefaultLocale): Promise<void> {
  await withConnection(url, client =>
    client.query(
      `update pg_database set ${catalog}, datcollversion = null
        where datname in ('template0', 'template1', 'postgres')`,
    ),
  );
}
