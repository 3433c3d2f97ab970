import { quoteIdentifier as quote } from '../../lib/postgres/quote.ts';

const setting = 'default_transaction_read_only';

/** A lock of a server, which an operator or a provider has set on purpose. */
export interface ReadOnlyLock {
  /** The kind of its place, as `pg_settings` names it. */
  readonly source: string;
  /** The file that has it; null if it is in none, or the login may not know. */
  readonly file: string | null;
}

/** SQL of the lock under which a session is; null: it may write. */
export const readOnlyLockSql = `
  case when current_setting('${setting}') = 'on'
       then (select json_build_object('source', source, 'file', sourcefile) from pg_settings where name = '${setting}') end`;

/**
 * Returns where a lock is, and what ends it there.
 * @returns the place for a sentence, such as `role acme`, and a whole sentence
 */
export function readOnlyText(
  lock: ReadOnlyLock,
  { login, database }: { readonly login: string; readonly database: string },
): { place: string; remedy: string } {
  const [role, base] = [quote(login), quote(database)];
  // The session of the superuser may be under the lock, too.
  const reset = (statement: string): string =>
    `When nothing needs the lock any more, run as a superuser: set ${setting} = off; ${statement} reset ${setting};`;

  switch (lock.source) {
    case 'user':
      return { place: `role ${login}`, remedy: reset(`alter role ${role}`) };
    case 'database':
      return { place: `database ${database}`, remedy: reset(`alter database ${base}`) };
    case 'database user':
      return {
        place: `role ${login} in database ${database}`,
        remedy: reset(`alter role ${role} in database ${base}`),
      };
    case 'global':
      return { place: 'all roles', remedy: reset('alter role all') };
    case 'client':
      return { place: 'the options of its URL', remedy: 'Remove it there' };
    case 'session':
      return {
        place: 'the session, by the pooler',
        remedy: 'Let the pooler connect anew (PgBouncer: RECONNECT), and remove the setting there',
      };
    case 'configuration file':
      return { place: 'the server', remedy: inFile(lock.file) };
    default:
      return {
        place: `the server, by its ${lock.source}`,
        remedy: 'When nothing needs the lock any more, restart the server without it',
      };
  }
}

/** @param file null if the login may not know it */
function inFile(file: string | null): string {
  if (file !== null && !file.endsWith('postgresql.auto.conf')) {
    return `When nothing needs the lock any more, remove it from ${file}, and run as a superuser: select pg_reload_conf();`;
  }

  const elsewhere =
    file === null
      ? ' remove it from postgresql.conf or the parameters of the provider if it is there, and'
      : '';
  return `When nothing needs the lock any more,${elsewhere} run as a superuser: alter system reset ${setting}; select pg_reload_conf();`;
}
