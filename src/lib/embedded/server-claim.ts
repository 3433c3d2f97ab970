import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, open, readdir, readFile, rename, rm, statfs } from 'node:fs/promises';
import { createConnection, createServer, type Server } from 'node:net';
import { join, relative } from 'node:path';
import { OperatorError } from '../log/operator-error.ts';
import { codeOf } from '../narrow.ts';
import { descriptorOf } from '../seams/server-descriptor.ts';
import { pathExists } from './cluster.ts';
import { isServedInSight, pidFile, seesAllProcesses } from './pid-file.ts';

/*
 * At most one PostgreSQL runs on a data folder, also where its processes cannot be seen: in
 * other containers and namespaces of the same kernel, and under other mounts of the folder.
 * Numbers of processes and ports say nothing there. A Unix socket with a path does: `connect`
 * reaches the process that listens on it from everywhere in the kernel.
 *
 * I1. A socket listens before it gets its final name, and no name is used twice. So a socket
 *     that refuses a connection is dead for ever, and can be removed.
 * I2. A process starts PostgreSQL only if no other socket answers while its own does. Of two
 *     processes, the one whose socket is later sees that of the earlier one. If each sees the
 *     other, both withdraw, and try again after a random pause.
 * I3. PostgreSQL inherits the socket, and this process closes it. So the kernel keeps it open
 *     until the last process of PostgreSQL has ended, whoever started it, and however it ends.
 * I4. A pid file is removed only by a holder of the claim that sees no server on the folder,
 *     and has seen a dead socket, as the server behind the file left it, or sees every process
 *     of the machine. Otherwise the file may belong to a server that cannot be seen. A dead
 *     socket may be missing: a copy of the folder by tar has the pid file of a running server,
 *     but no sockets. And a dead socket alone proves nothing under a mount of another kind
 *     (FUSE), where the socket of a running server is dead; so the holder also looks for a
 *     server that works in the folder of its own socket.
 * I5. A socket has its final name on disk before PostgreSQL writes its pid file. So a loss of
 *     power leaves no pid file without a socket.
 *
 * No process accepts the connections. After 511 of them Linux answers EAGAIN, which is an
 * answer, too.
 */

/** The right to start PostgreSQL on a folder. It lasts as long as its socket is open. */
export interface ServerClaim {
  /** The file descriptor that PostgreSQL inherits. */
  readonly descriptor: number;
  /**
   * Closes the socket in this process. Without a PostgreSQL that has inherited it, the claim
   * ends.
   */
  release(): void;
}

const claimsOf = (folder: string): string => join(folder, 'running');
/**
 * The form of the names of claims that listen: a claim that does not listen yet has another
 * form.
 */
const claimName = /^[0-9a-f]{16}$/;

/**
 * Returns true if a PostgreSQL runs on the folder, or a process is about to start one, seen or
 * unseen.
 */
export async function isClaimed(folder: string): Promise<boolean> {
  return (await readClaims(folder)).living.length > 0;
}

/**
 * Claims a folder, and removes the socket and the pid file that a killed server has left.
 * @returns undefined if another process has claimed it
 * @throws {OperatorError} when it cannot be known whether a server runs, or the folder cannot
 *   have sockets
 */
export async function claimServer(folder: string, data: string): Promise<ServerClaim | undefined> {
  const isNew = (await mkdir(claimsOf(folder), { recursive: true, mode: 0o700 })) !== undefined;
  if (isNew) await syncFolder(folder);
  const name = randomBytes(8).toString('hex');
  const server = await listenAs(folder, name);
  const release = (): void => void server.close();

  try {
    const { living, dead } = await readClaims(folder, name);
    if (living.length > 0) {
      await rm(join(claimsOf(folder), name), { force: true });
      release();
      return undefined;
    }

    await removeLeftPidFile(data, relative(data, join(claimsOf(folder), name)), dead.length > 0);
    for (const each of dead) {
      await rm(join(claimsOf(folder), each), { force: true });
    }

    return { descriptor: descriptorOf(server), release };
  } catch (error) {
    await rm(join(claimsOf(folder), name), { force: true });
    release();
    throw error;
  }
}

/**
 * Removes the pid file of a server that has ended: PostgreSQL would take the process that has
 * the number now for that server, and refuse to start.
 * @param claim the path of the own socket from the data folder
 * @throws {OperatorError} when nothing proves that the server has ended
 */
async function removeLeftPidFile(data: string, claim: string, hasEnded: boolean): Promise<void> {
  const path = pidFile(data);
  if (!(await pathExists(path))) return;
  const before = await readFile(path, 'utf8');
  if (await isServedInSight(data, claim)) {
    throw new OperatorError(
      `A PostgreSQL already uses ${data}, under another mount of the folder, or is about to end: ` +
        'use the folder by the path that it has there, or stop it first',
    );
  }

  // A server that was started without a claim, as by hand, may have started meanwhile.
  const isLeft = hasEnded || (await seesAllProcesses());
  if (!isLeft || (await readFile(path, 'utf8')) !== before) {
    throw new OperatorError(
      `${path} belongs to a PostgreSQL that cannot be seen from here, such as one in another container. ` +
        'Stop it; if none runs on these data, remove the file',
    );
  }
  await rm(path);
}

interface Claims {
  readonly living: readonly string[];
  readonly dead: readonly string[];
}

/** @param own the name of a claim that is left out */
async function readClaims(folder: string, own?: string): Promise<Claims> {
  const names = (await readdir(claimsOf(folder)).catch(ignoreMissing)) ?? [];
  const others = names.filter(name => claimName.test(name) && name !== own);
  const states = await Promise.all(others.map(name => stateOf(folder, name)));
  const having = (state: SocketState) => others.filter((_, index) => states[index] === state);
  return { living: having('living'), dead: having('dead') };
}

type SocketState = 'living' | 'dead' | 'gone';

/**
 * Returns the state of a socket. A socket whose state is not known, such as one that this login
 * may not use, counts as living.
 */
async function stateOf(folder: string, name: string): Promise<SocketState> {
  return withShortPath(folder, name, async path => {
    const socket = createConnection(path);
    try {
      await once(socket, 'connect');
      return 'living';
    } catch (error) {
      const code = codeOf(error);
      if (code === 'ECONNREFUSED') return 'dead';
      return code === 'ENOENT' ? 'gone' : 'living';
    } finally {
      socket.destroy();
    }
  });
}

/** Makes a socket that listens, and then gives it its name. */
async function listenAs(folder: string, name: string): Promise<Server> {
  const temporary = `${name}.new`;
  const server = createServer(socket => socket.destroy());
  try {
    await withShortPath(folder, temporary, path => once(server.listen(path), 'listening'));
    // When Node closes a server, it removes the name with which the server began to listen. The
    // other name stays.
    await rename(join(claimsOf(folder), temporary), join(claimsOf(folder), name));
    await syncFolder(claimsOf(folder));
    return server;
  } catch (cause) {
    server.close();
    const code = codeOf(cause);
    throw new OperatorError(
      `DATA_DIR cannot have the socket that guards its PostgreSQL (${code}): set it to a folder on a local disk, or ` +
        'set DATABASE_URL',
      { cause },
    );
  }
}

/** Writes the names in a folder to disk. */
async function syncFolder(folder: string): Promise<void> {
  const directory = await open(folder, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

/**
 * Runs `work` with a path of a socket that the kernel takes: at most 107 bytes, while a folder
 * may have more. Elsewhere than on Linux, the path stays as it is.
 */
async function withShortPath<Result>(
  folder: string,
  name: string,
  work: (path: string) => Promise<Result>,
): Promise<Result> {
  if (process.platform !== 'linux') return work(join(claimsOf(folder), name));
  const directory = await open(claimsOf(folder), 'r');
  try {
    return await work(`/proc/self/fd/${directory.fd}/${name}`);
  } finally {
    await directory.close();
  }
}

function ignoreMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}

/** File systems that several machines use at once, by their numbers in `statfs`. */
const sharedFileSystems: Record<number, string> = {
  26985: 'NFS',
  20859: 'SMB',
  4283649346: 'SMB',
  4266872130: 'SMB',
  12805120: 'Ceph',
  1397113167: 'AFS',
  18225520: 'GFS2',
  1952539503: 'OCFS2',
  198183888: 'Lustre',
  1196443219: 'GPFS',
};

/**
 * Requires a file system that no other machine uses. Sockets reach only the processes of one
 * kernel, so another machine would start a second PostgreSQL on the same data.
 * @throws {OperatorError} on a file system that other machines may use
 */
export async function requireOwnFileSystem(folder: string): Promise<void> {
  if (process.platform !== 'linux') return;
  const { type } = await statfs(folder);
  const name = sharedFileSystems[type >>> 0];
  if (name === undefined) return;
  throw new OperatorError(
    `DATA_DIR is on a network file system (${name}), where another machine could start a PostgreSQL on the same data: ` +
      'set it to a folder on a local disk, or set DATABASE_URL',
  );
}
