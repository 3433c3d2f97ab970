import { createReadStream, createWriteStream } from 'node:fs';
import { mkdtemp, rename, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type pg from 'pg';
import { to as copyTo } from 'pg-copy-streams';
import { type Pack, pack } from 'tar-stream';
import type { Installation } from '../../installation.ts';
import { OperatorError } from '../../log/operator-error.ts';
import { withConnection } from '../../postgres/connection.ts';
import { canonicalTextSettings } from '../schema/tenant-tables.ts';
import { findTenant } from '../tenants/tenants.ts';
import { type ExportedResource, peopleResources, resourceSchema, tableResources } from './resource-schema.ts';

export interface ExportReport {
  slug: string;
  file: string;
  bytes: number;
  resources: { name: string; rows: number }[];
}

type Resource = ExportReport['resources'][number];

/**
 * Writes the data of a tenant into a tar file that needs none of our software to be read: for each resource its rows as
 * JSON Lines and as CSV (RFC 4180), and a JSON Schema of a row; and a manifest. The users are among them, without their
 * passwords. The tenant is served meanwhile. The tables of its database are those of one moment, as are its people.
 * @param path of the file, which must not exist; only this login may read it
 * @throws {OperatorError} when there is no such tenant, or the file exists or cannot be written
 */
export async function exportTenant(installation: Installation, slug: string, path: string): Promise<ExportReport> {
  const tenant = await findTenant(installation, slug);
  const url = installation.servers.adminUrl(tenant.server, tenant.databaseName);
  const scratch = await makeScratchFolder(path);
  try {
    const temporary = join(scratch, 'export.tar');
    const tar = pack();
    const output = createWriteStream(temporary, { mode: 0o600, flush: true });
    const written = pipeline(tar, output);
    const add = (from: string, list: (client: pg.Client) => ExportedResource[] | Promise<ExportedResource[]>) =>
      withConnection(from, client => addResources(client, tar, scratch, list), { settings: canonicalTextSettings });
    const fill = async (): Promise<Resource[]> => {
      const tables = await add(url, tableResources);
      const people = await add(installation.controlUrl, () => peopleResources(tenant.id));
      const resources = [...tables, ...people];
      const { guid, name } = tenant;
      const manifest = { format: 1, tenant: { guid, slug, name }, exportedAt: new Date().toISOString(), resources };
      await addText(tar, 'manifest.json', `${JSON.stringify(manifest, null, 2)}\n`);
      tar.finalize();
      return resources;
    };
    const [resources] = await Promise.all([fill(), written]);
    await rename(temporary, path);
    return { slug, file: path, bytes: output.bytesWritten, resources };
  } catch (error) {
    throw /^E(NOSPC|DQUOT|FBIG|IO|ROFS)$/.test((error as NodeJS.ErrnoException).code ?? '')
      ? notWritten(path, error)
      : error;
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

/** @throws {OperatorError} when the file exists */
export async function requireNoFile(path: string): Promise<void> {
  if (await stat(path).catch(() => undefined))
    throw new OperatorError(`${path} exists already: remove it, or name another file`);
}

/** Creates a folder beside the file. */
async function makeScratchFolder(path: string): Promise<string> {
  await requireNoFile(path);
  try {
    return await mkdtemp(join(dirname(path), '.export-'));
  } catch (cause) {
    throw notWritten(path, cause);
  }
}

function notWritten(path: string, cause: unknown): OperatorError {
  const { code } = cause as NodeJS.ErrnoException;
  return new OperatorError(`${dirname(path)} cannot be written (${code}): name a file in another folder`, { cause });
}

/** Adds the resources of one database, in one snapshot. */
async function addResources(
  client: pg.Client,
  tar: Pack,
  scratch: string,
  list: (client: pg.Client) => ExportedResource[] | Promise<ExportedResource[]>,
): Promise<Resource[]> {
  await client.query('begin isolation level repeatable read read only');
  const added: Resource[] = [];
  for (const { name, query } of await list(client)) {
    await addText(
      tar,
      `schemas/${name}.json`,
      `${JSON.stringify(await resourceSchema(client, name, query), null, 2)}\n`,
    );
    // JSON has no control characters, so with these as quote and delimiter the CSV format writes it unchanged.
    const json = `copy (select row_to_json(r) from (${query}) r) to stdout (format csv, quote e'\\x01', delimiter e'\\x02')`;
    const rows = await addStream(tar, `json/${name}.jsonl`, client.query(copyTo(json)), scratch);
    await addStream(
      tar,
      `csv/${name}.csv`,
      client.query(copyTo(`copy (${query}) to stdout (format csv, header)`)),
      scratch,
    );
    added.push({ name, rows });
  }
  await client.query('rollback');
  return added;
}

/** Adds a file with this text. */
function addText(tar: Pack, name: string, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    tar.entry({ name, mtime: new Date() }, text, error => (error ? reject(error) : resolve()));
  });
}

/**
 * Adds a file with the bytes of a stream. Writes them to a file in `scratch` first, because their number comes before
 * them in a tar file.
 * @returns the number of lines
 */
async function addStream(tar: Pack, name: string, bytes: Readable, scratch: string): Promise<number> {
  const spool = join(scratch, 'entry');
  let lines = 0;
  const counted = async function* (): AsyncGenerator<Buffer> {
    for await (const chunk of bytes as AsyncIterable<Buffer>) {
      for (let at = chunk.indexOf(10); at >= 0; at = chunk.indexOf(10, at + 1)) lines++;
      yield chunk;
    }
  };
  await pipeline(counted, createWriteStream(spool, { mode: 0o600 }));
  const { size } = await stat(spool);
  const entry = tar.entry({ name, size, mtime: new Date() });
  await pipeline(createReadStream(spool), entry);
  return lines;
}
