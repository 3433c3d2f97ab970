import { OperatorError } from '../../log/operator-error.ts';
import { type ControlArchiveAccess, listControlArchives, loadControlArchive } from '../archives/control-archive.ts';
import { ArchiveFault } from '../archives/format/archive-fault.ts';

/** A state of the control database that can be restored. */
export interface ControlSource {
  /** The file of the archive, or what was recovered. */
  readonly description: string;
  /** The time of the state. */
  readonly at: Date;
  /** Writes the state into an empty database, with the schema that it has. */
  load(url: string): Promise<void>;
}

/**
 * Returns the control database as an archive has it.
 * @param name the file of the archive, or a part of its name; undefined: the newest archive
 * @throws {OperatorError} when the target has no such archive
 */
export async function archivedControl(access: ControlArchiveAccess, name: string | undefined): Promise<ControlSource> {
  const archives = await listControlArchives(access);
  const archive = archives.find(({ file }) => name === undefined || file.includes(name));
  if (!archive)
    throw new OperatorError(`${access.target.description} has no archive ${name ?? 'of the control database'}`);
  const { file, at } = archive;
  return {
    description: file,
    at,
    load: url =>
      loadControlArchive(url, access, file).catch(error => {
        if (!(error instanceof ArchiveFault)) throw error;
        throw new OperatorError(
          `The archive ${file} cannot be restored: ${error.message}. Name another one: --archive`,
          { cause: error },
        );
      }),
  };
}
