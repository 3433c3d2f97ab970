import type { Tenant } from '../../control/control-entities.ts';
import type { Installation } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import type { Context } from '../command/operation.ts';
import { option, optionalSecret } from '../command/operation-fields.ts';
import type { EarlierData } from '../databases/copy/fill-database.ts';
import { parseMoment } from './parse-moment.ts';

/**
 * The field of a command that reads the URL of a recovered server, which holds a password, from
 * stdin.
 */
export const fromField = optionalSecret(
  'url',
  'URL of the recovered server',
  '--from',
  'from a recovered server; its postgresql:// URL is read from stdin, because it holds a password',
  { label: 'From a recovered server', isAdvanced: true },
);

/**
 * The field of a command that names the time to which its server was recovered, to the
 * microsecond.
 */
export const untilField = option(
  '<time>',
  'with --from: refuse data that are later than this time, given with its zone, such as 2026-11-21T14:05:00Z',
  { label: 'Recovered until', kind: 'time', parse: parseMoment, isAdvanced: true },
);

/**
 * The field of a command that takes an archive although nobody can prove who has written it.
 */
export const withoutMacField = option(
  '<slug>',
  'its key is lost: nobody knows who has written the archive. Type the slug of the tenant',
  { kind: 'text', label: 'Without a proof of its writer', isAdvanced: true },
);

/**
 * The earlier data of a tenant that is restored: that of an archive, or of a recovered server;
 * and its place.
 */
export interface ChosenMoment {
  archive: string | undefined;
  from: string | undefined;
  /** The time to which the server was recovered, in the form of PostgreSQL. */
  until?: string | undefined;
  /** The slug, as the operator typed it: also an archive without a proof of its writer. */
  withoutMac?: string | undefined;
  /** The largest tar that is read where nothing is recorded of an archive. */
  maxBytes?: number | undefined;
  /** True if the new database takes the place of a lost one. */
  lost?: boolean;
}

/** @throws {OperatorError} when the fields do not go together */
export function requireOneChoice({
  archive,
  from,
  until,
  withoutMac,
  maxBytes,
}: Omit<ChosenMoment, 'lost'>): void {
  if (archive !== undefined && from !== undefined) {
    throw new OperatorError('Give either --archive or --from', { usage: true });
  }
  if (until !== undefined && from === undefined) {
    throw new OperatorError('Give --until together with --from', { usage: true });
  }
  if (withoutMac !== undefined && archive === undefined) {
    throw new OperatorError('Give --without-mac together with --archive', { usage: true });
  }
  if (maxBytes !== undefined && from !== undefined) {
    throw new OperatorError('Give --max-bytes for an archive', { usage: true });
  }
}

/** Data of a tenant that can be restored. */
interface ChosenData {
  /** The description of the data that is known before any of it is read. */
  readonly description: string;
  /** The time of the data; undefined: not known before it is read. */
  readonly time?: Date;
  /** Runs `work` on the data. */
  use<T>(work: (data: EarlierData) => Promise<T>): Promise<T>;
}

/** The sink of the lines that the operator reads meanwhile. */
interface Told {
  readonly onStep: (step: string) => void;
  readonly warn: (text: string) => void;
}

/**
 * Returns the chosen data of a tenant; without a choice, that of its newest archive. Neither
 * checks an archive nor connects to a server.
 */
export async function chooseData(
  installation: Installation,
  source: Tenant,
  { archive: id, from, until, withoutMac, maxBytes, lost = false }: ChosenMoment,
  { onStep, warn }: Told,
): Promise<ChosenData> {
  requireOneChoice({ archive: id, from, until, withoutMac });
  if (from !== undefined) {
    const { namesOf, restoreRecovered } = await import('./recovered-tenant.ts');
    const { parseServerUrl } = await import('../servers/parse-server-url.ts');
    const options = {
      url: parseServerUrl(from),
      names: await namesOf(installation, source),
      until,
      onStep,
    };
    return {
      description: 'a recovered server',
      ...(until !== undefined && { time: new Date(until) }),
      use: work => restoreRecovered(source, options, work),
    };
  }

  const { findArchive, restoreArchive } = await import('../backup/restore/restore-archive.ts');
  const found = await findArchive(installation, source, id, { withoutMac, maxBytes });
  const { name, time } = found.expected;
  const later = found.later.map(archive => archive.name).join(', ');
  const before = later === '' ? '' : `, unless a newer object opens: ${later}`;

  return {
    description: `${name} of ${time.toISOString()}${before}`,
    time,
    use: work => {
      onStep(`loading the archive of ${time.toISOString()}`);
      const options = { destination: lost ? '--lost' : '', takesEarlier: lost, warn };
      return restoreArchive(installation, source, found, options, work);
    },
  };
}

/** Runs `restore` on the chosen data of a tenant. */
export async function restoreData<T>(
  installation: Installation,
  source: Tenant,
  moment: ChosenMoment,
  { progress, output }: Pick<Context, 'progress' | 'output'>,
  restore: (data: EarlierData) => Promise<T>,
): Promise<{ restored: T; restoredFrom: string; seconds: number }> {
  const startedAt = performance.now();
  const told: Told = { onStep: step => progress.step(step), warn: text => output.warn(text) };
  const chosen = await chooseData(installation, source, moment, told);
  let restoredFrom = '';
  const restored = await chosen.use(data => {
    restoredFrom = data.description;
    return restore(data);
  });

  return {
    restored,
    restoredFrom,
    seconds: Math.round((performance.now() - startedAt) / 10) / 100,
  };
}
