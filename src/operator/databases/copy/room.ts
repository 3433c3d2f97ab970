import { readFile, statfs } from 'node:fs/promises';
import type pg from 'pg';
import type { Server, Tenant } from '../../../control/control-entities.ts';
import type {
  ControlAddress,
  ControlStatements,
  Installation,
  ServerAccess,
} from '../../../control/installation.ts';
import { pidFile } from '../../../lib/embedded/pid-file.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import {
  acquireLock,
  copiesSpace,
  lockSpaces,
  releaseLock,
} from '../../../lib/postgres/advisory-locks.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import type { Queryable } from '../../../lib/postgres/shared-connection.ts';
import { sizeText } from '../../command/texts.ts';

/*
 * Every copy of a database asks `decideRoom` before it begins: a server whose disk is full
 * stops, and serves no tenant. Each copy that runs holds an advisory lock of the control
 * database, whose second number is the size of the copy. So every command sees the copies of
 * the others, and the copy of a killed command does not count.
 */

/** A copy that a command is about to make. */
interface PlannedCopy {
  readonly server: Server;
  /** The URL of any database of the server. */
  readonly adminUrl: string;
  /** The name of the copied data, for people: `acme`. */
  readonly of: string;
  /** The size that the copy will have, about. */
  readonly bytes: number;
}

/** The room that a copy needs, and that its server has. */
export interface CopyRoom {
  server: string;
  /** The copy, those that are being made, and as much again for the write-ahead log. */
  neededBytes: number;
  /** Null: not known. */
  freeBytes: number | null;
  /** The size of the disk; null: not known. */
  diskBytes: number | null;
  /** False if less than a tenth of the disk would be left; null: not known. */
  isEnough: boolean | null;
  /** True: an operator has stated the disk; false: this machine sees it; null: not known. */
  isStated: boolean | null;
}

/** The part of a disk that every copy leaves free. */
const minFree = 0.1;
/** The write-ahead log of a copy has all of its rows once more. */
const logFactor = 2;

const bytesPerGb = 1024 ** 3;
const megabyte = 1024 ** 2;

/**
 * Returns whether a server has the room for a copy, and changes nothing.
 * @param control a connection to the control database
 */
async function decideRoom(control: Queryable, copy: PlannedCopy): Promise<CopyRoom> {
  const { server, adminUrl, bytes } = copy;
  const reserved = await readReserved(control, server);
  const disk = await withConnection(adminUrl, client => readDisk(client, server));

  const neededBytes = logFactor * (bytes + reserved);
  if (!disk) {
    return {
      server: server.name,
      neededBytes,
      freeBytes: null,
      diskBytes: null,
      isEnough: null,
      isStated: null,
    };
  }

  return { server: server.name, neededBytes, ...disk, isEnough: neededBytes <= roomOf(disk) };
}

/** @throws {OperatorError} when the server has no room for a copy */
async function requireRoom(control: Queryable, copy: PlannedCopy): Promise<CopyRoom> {
  const room = await decideRoom(control, copy);
  if (room.isEnough === false) {
    const larger = `, or if its disk is larger than that, ${stateText(copy.server.name)}`;
    throw new OperatorError(
      `${shortRoomText(copy, room)}: the copy was not begun. Make room there${room.isStated ? larger : ''}`,
    );
  }

  return room;
}

/**
 * Returns the room for a copy of the data of a tenant on a server, by its present size; null:
 * the size is not known.
 * @throws {OperatorError} when the server has no room for it, unless `mayBeShort`
 */
export async function planRoom(
  installation: Installation,
  tenant: Pick<Tenant, 'id' | 'slug' | 'server' | 'databaseName'>,
  server: Server,
  { mayBeShort = false } = {},
): Promise<CopyRoom | null> {
  const bytes = await readKnownBytes(installation, tenant);
  if (bytes === undefined) return null;

  const copy = { server, adminUrl: installation.servers.adminUrl(server), of: tenant.slug, bytes };
  if (!mayBeShort) return checkRoom(installation, copy);

  return withConnection(installation.controlUrl, control => decideRoom(control, copy));
}

/**
 * Checks that a server has the room for a copy, before anything is begun for it.
 * @throws {OperatorError} when it has not
 */
export function checkRoom({ controlUrl }: ControlAddress, copy: PlannedCopy): Promise<CopyRoom> {
  return withConnection(controlUrl, control => requireRoom(control, copy));
}

/**
 * Reserves the room for a copy, until the returned function is called or the connection ends.
 * Two commands decide one after the other, so that both see the room that the other one takes.
 * @param control a connection to the control database that lasts as long as the copy
 * @param warn takes a sentence if there is no room, and the copy goes on; undefined: it is
 *   refused
 * @throws {OperatorError} when the server has no room for the copy
 */
export async function reserveRoom(
  control: Queryable,
  copy: PlannedCopy,
  warn?: (text: string) => void,
): Promise<() => Promise<void>> {
  const { id } = copy.server;
  const lock = [copiesSpace + id, Math.ceil(copy.bytes / megabyte)] as const;

  await acquireLock(control, lockSpaces.room, id);
  try {
    if (warn) {
      const room = await decideRoom(control, copy);
      if (room.isEnough === false) warn(`${shortRoomText(copy, room)}.`);
    } else {
      await requireRoom(control, copy);
    }
    await control.query('select pg_advisory_lock_shared($1, $2)', [...lock]);
  } finally {
    await releaseLock(control, lockSpaces.room, id);
  }

  return () => releaseLock(control, ...lock, 'shared');
}

/**
 * Returns the size of a database.
 * @param url of the database
 */
export async function readBytes(url: string): Promise<number> {
  return withConnection(url, readOwnBytes);
}

/** Returns the size of the database of a connection. */
export async function readOwnBytes(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ bytes: number }>(
    'select pg_database_size(current_database())::float8 as bytes',
  );
  return rows[0]?.bytes ?? 0;
}

/**
 * Returns the size that the database of a tenant has, or had when doctor measured it last. A
 * copy of its earlier data has about that size. Undefined: not known.
 */
async function readKnownBytes(
  { servers, statements }: ServerAccess & ControlStatements,
  { id, server, databaseName }: Pick<Tenant, 'id' | 'server' | 'databaseName'>,
): Promise<number | undefined> {
  const present = await readBytes(servers.adminUrl(server, databaseName)).catch(() => undefined);
  if (present !== undefined) return present;

  const { rows } = await statements.query<{ bytes: number }>(
    `select database_bytes::float8 as bytes from tenant_usage
      where tenant_id = $1 and database_bytes is not null order by hour desc limit 1`,
    [id],
  );
  const [measured] = rows;
  return measured?.bytes;
}

/** Formats the room for a copy, as the end of a plan. */
export function roomText({ server, neededBytes, freeBytes, diskBytes }: CopyRoom): string {
  const needed = `The copy needs ${sizeText(neededBytes)} on ${server}, half of it for the write-ahead log`;
  if (freeBytes === null || diskBytes === null) {
    return `${needed}. How much its disk has free is not known: ${stateText(server)}`;
  }
  return `${needed}. It has ${sizeText(freeBytes)} of ${sizeText(diskBytes)} free.`;
}

/** Returns the words that ask for the size of a disk. */
function stateText(server: string): string {
  return `state its size: bin/backoffice server set ${server} --disk-gb <GiB>`;
}

function shortRoomText(
  { of }: PlannedCopy,
  { server, neededBytes, freeBytes, diskBytes }: CopyRoom,
): string {
  const left = (freeBytes ?? 0) - neededBytes;
  return (
    `The copy of ${of} needs ${sizeText(neededBytes)} on ${server}, half of it for the write-ahead log, and it has ` +
    `${sizeText(Math.max(0, freeBytes ?? 0))} of ${sizeText(diskBytes ?? 0)} free: ` +
    (left < 0 ? 'its disk would be full' : 'less than a tenth would be left')
  );
}

/** Returns the bytes of the copies that are being made on a server. */
async function readReserved(control: Queryable, { id }: Server): Promise<number> {
  const { rows } = await control.query<{ megabytes: number }>(
    `select coalesce(sum(objid::bigint), 0)::float8 as megabytes from pg_locks
      where locktype = 'advisory' and granted and classid = $1::bigint and objsubid = 2
        and database = (select oid from pg_database where datname = current_database())`,
    [copiesSpace + id],
  );
  return (rows[0]?.megabytes ?? 0) * megabyte;
}

interface Disk {
  readonly freeBytes: number;
  readonly diskBytes: number;
  readonly isStated: boolean;
}

/** Returns the bytes that copies may take of a disk. */
function roomOf({ freeBytes, diskBytes }: Disk): number {
  return freeBytes - minFree * diskBytes;
}

/**
 * Returns the disk of a server: as an operator has stated it, or as this machine sees it, if
 * the data folder of the server is here. Of both, the one with less room: a stated disk does
 * not know of other files, and a folder may be limited to less than its disk. Undefined: not
 * known.
 * @param client connected to a database of the server
 */
async function readDisk(client: pg.Client, server: Server): Promise<Disk | undefined> {
  const stated = await readStatedDisk(client, server);
  const seen = await readOwnDisk(client);
  if (!stated || !seen) return stated ?? seen;

  return roomOf(seen) < roomOf(stated) ? seen : stated;
}

/**
 * Returns the disk that an operator has stated, without the databases and the largest
 * write-ahead log.
 */
async function readStatedDisk(client: pg.Client, { diskGb }: Server): Promise<Disk | undefined> {
  if (!diskGb) return undefined;

  const diskBytes = diskGb * bytesPerGb;
  // Every login may read the size of the tablespace of its own database.
  const { rows } = await client.query<{ used: number }>(
    `select (pg_tablespace_size(dattablespace) + pg_size_bytes(current_setting('max_wal_size')))::float8 as used
       from pg_database where datname = current_database()`,
  );
  return { diskBytes, freeBytes: diskBytes - (rows[0]?.used ?? 0), isStated: true };
}

/** The maximum seconds between the times of its start that PostgreSQL writes in two places. */
const maxStartDifference = 5;

/** Returns the disk with the data folder of a server; undefined if it cannot be seen here. */
export async function readOwnDisk(client: pg.Client): Promise<Disk | undefined> {
  const { rows } = await client.query<{ folder: string; startedAt: number }>(
    `select setting as folder, extract(epoch from pg_postmaster_start_time())::float8 as "startedAt"
       from pg_settings where name = 'data_directory'`,
  );
  const [found] = rows; // a login with few rights does not see the setting
  if (!found) return undefined;

  // Another machine, or a container, may have a folder of that name: its server began at
  // another time.
  const file = await readFile(pidFile(found.folder), 'utf8').catch(() => '');
  const startedAt = Number(file.split('\n')[2]);
  if (!(Math.abs(startedAt - found.startedAt) <= maxStartDifference)) return undefined;

  const { blocks, bavail, bsize } = await statfs(found.folder);
  return { diskBytes: blocks * bsize, freeBytes: bavail * bsize, isStated: false };
}
