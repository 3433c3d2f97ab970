import type pg from 'pg';
import { OperatorError } from '../../../operator-error.ts';
import { sqlState } from '../../../postgres/database-error.ts';
import { quoteLiteral } from '../../../postgres/quote.ts';

interface ArchiveSettings {
  mode: string;
  command: string;
  library: string;
  directory: string | null;
}

/** Values of `archive_command` that archive nothing: unset, disabled, and what the embedded server starts with. */
const noCommand = ['', '(disabled)', 'true', '/bin/true'];

/**
 * Lets a server archive its write-ahead log to a folder, unless it archives elsewhere already.
 * @param client with the login of a superuser
 * @param folder of the archive; the server can write to it
 * @param other the folder that the server archives to already, as the operator has named it
 * @returns the folder that the server archives to
 * @throws {OperatorError} when the server does not archive, and a restart or another login is needed for that
 */
export async function requireWalArchive(client: pg.Client, folder: string, other?: string): Promise<string> {
  const settings = await readSettings(client);
  if (settings.mode === 'off')
    throw new OperatorError(
      'The server does not archive its write-ahead log: archive_mode is off, and only a restart changes it. ' +
        'Embedded server: end the service and all commands, so that it starts anew. Any other: run ' +
        "alter system set archive_mode = 'on'; alter system set archive_command = 'true'; and restart the server. " +
        'Then run backup base again',
    );
  if (other !== undefined) return other;
  if (settings.library === 'basic_archive' && settings.directory === folder) return folder;
  if (settings.library !== '' || !noCommand.includes(settings.command))
    throw new OperatorError(
      'The server archives its write-ahead log already (archive_command or archive_library). ' +
        'Name the folder that the segments get to: backup base --wal <folder>',
    );
  try {
    await client.query("load 'basic_archive'"); // so that PostgreSQL 16 knows its setting
    await client.query(`alter system set basic_archive.archive_directory = ${quoteLiteral(folder)}`);
    await client.query(`alter system set archive_command = ''`);
    await client.query(`alter system set archive_library = 'basic_archive'`);
    await client.query('select pg_reload_conf()');
  } catch (error) {
    if (sqlState(error) !== '42501' && sqlState(error) !== '58P01') throw error;
    throw new OperatorError(
      'The login of the server may not turn on archiving, or the server lacks the module basic_archive. Let a ' +
        `superuser set archive_command so that segments get to ${folder}, then run: backup base --wal ${folder}`,
      { cause: error },
    );
  }
  return folder;
}

async function readSettings(client: pg.Client): Promise<ArchiveSettings> {
  const { rows } = await client.query<ArchiveSettings>(
    `select current_setting('archive_mode') as mode, current_setting('archive_command') as command,
            coalesce(current_setting('archive_library', true), '') as library,
            current_setting('basic_archive.archive_directory', true) as directory`,
  );
  return rows[0] ?? { mode: 'off', command: '', library: '', directory: null };
}
