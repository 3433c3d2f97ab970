import { existsSync } from 'node:fs';
import { chown, copyFile, mkdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { quoteIdentifier, quoteLiteral } from '../../../src/lib/postgres/quote.ts';
import { fail, variable } from './programs.ts';

/** The PostgreSQL servers of the kit. */
const servers: { url: string; folder: string }[] = JSON.parse(variable('KIT_SERVERS'));

/**
 * Does what a PostgreSQL server of a kit does when it starts for the first time: makes its
 * login with the password of the kit and its database, and serves TLS with the certificate of
 * the kit.
 * @param number of the server in the kit, from 0
 * @param login with its attributes, such as `createdb`
 * @param files certificate and key
 */
export async function beginServer(
  number: number,
  login: { readonly name: string; readonly password: string; readonly attributes: string },
  files: readonly [certificate: string, key: string],
): Promise<void> {
  const server = servers[number];
  if (!server) fail(`there is no server ${number}`);
  const folder = join(server.folder, 'tls');
  if (existsSync(folder)) return;

  await mkdir(folder, { recursive: true });
  const { uid, gid } = await stat(join(server.folder, 'postgres'));
  const [certificate, key] = [join(folder, 'certificate'), join(folder, 'key')];

  await copyFile(files[0], certificate);
  await copyFile(files[1], key);
  if (process.getuid?.() === 0) {
    for (const each of [folder, certificate, key]) await chown(each, uid, gid);
  }

  await withConnection(server.url, async client => {
    const name = quoteIdentifier(login.name);
    await client.query(
      `create role ${name} login ${login.attributes} password ${quoteLiteral(login.password)}`,
    );
    await client.query(`create database backoffice owner ${name}`);

    for (const [setting, value] of [
      ['ssl_cert_file', certificate],
      ['ssl_key_file', key],
      ['ssl', 'on'],
    ]) {
      await client.query(`alter system set ${setting} = ${quoteLiteral(value ?? '')}`);
    }

    await client.query('select pg_reload_conf()');
  });
}
