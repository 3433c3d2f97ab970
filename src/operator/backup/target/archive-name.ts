import { createHash, randomInt } from 'node:crypto';

/** The parts of an archive's name. Anybody who can write to the target can choose a name. */
export interface ArchiveName {
  /** The name of the object in its target. */
  readonly name: string;
  /** The id of the installation. */
  readonly installation: string;
  /** The guid of the tenant; null: the control database. */
  readonly tenant: string | null;
  /** The time by the clock of the control database, with milliseconds. */
  readonly time: Date;
  /**
   * The fingerprint of the recipients for whom the archive is sealed (`fingerprintRecipients`).
   */
  readonly recipients: string;
}

const letters = 'abcdefghijklmnopqrstuvwxyz0123456789';
const uuid = '[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}';
const time = '\\d{8}T\\d{6}\\.\\d{3}Z';
const pattern = new RegExp(
  `^(${uuid})/(?:control|tenants/(${uuid}))/(${time})\\.([0-9a-f]{8})\\.[a-z0-9]{6}\\.tar\\.zst\\.age$`,
);
const tenantPattern = new RegExp(`^${uuid}/tenants/(${uuid})/`);

/**
 * Makes the name of a new archive, such as
 * `<installation>/tenants/<guid>/20260131T235959.123Z.0a1b2c3d.k3x9qz.tar.zst.age`. No two
 * archives have the same name, and those of one database sort by time.
 * @param parts with the time of the control database
 */
export function createArchiveName(parts: Omit<ArchiveName, 'name'>): ArchiveName {
  const { installation, tenant, time: at, recipients } = parts;
  const random = Array.from({ length: 6 }, () => letters[randomInt(letters.length)]).join('');
  const stamp = at.toISOString().replace(/[-:]/g, '');

  return {
    ...parts,
    name: `${archiveFolder(installation, tenant)}${stamp}.${recipients}.${random}.tar.zst.age`,
  };
}

/** @returns undefined for a name that no archive has, such as one with an impossible time */
export function parseArchiveName(name: string): ArchiveName | undefined {
  const [, installation, tenant = null, stamp, recipients] = pattern.exec(name) ?? [];
  if (!installation || !stamp || !recipients) return undefined;

  const at = new Date(stamp.replace(/^(....)(..)(..T..)(..)(.*)$/, '$1-$2-$3:$4:$5'));
  if (Number.isNaN(at.getTime()) || at.toISOString().replace(/[-:]/g, '') !== stamp) {
    return undefined;
  }

  return { name, installation, tenant, time: at, recipients };
}

/**
 * Returns the guid of the tenant in whose folder an object is, whatever the object is;
 * undefined: it is in no such folder.
 */
export function tenantOfObject(name: string): string | undefined {
  return tenantPattern.exec(name)?.[1];
}

/**
 * Returns the folder of the archives of one database, with a slash at its end.
 * @param tenant the guid of the tenant; null: the control database
 */
export function archiveFolder(installation: string, tenant: string | null): string {
  return tenant === null ? `${installation}/control/` : `${installation}/tenants/${tenant}/`;
}

/**
 * Returns the fingerprint of the recipients in names of archives: 8 hexadecimal digits, the
 * same for any order of them.
 */
export function fingerprintRecipients(recipients: readonly string[]): string {
  const sorted = [...new Set(recipients.map(recipient => recipient.trim()))].sort();

  return createHash('sha256').update(sorted.join('\n')).digest('hex').slice(0, 8);
}
