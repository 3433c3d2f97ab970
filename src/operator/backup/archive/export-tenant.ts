import { createWriteStream } from 'node:fs';
import { mkdtemp, rename, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import type pg from 'pg';
import type { Installation } from '../../../control/installation.ts';
import { formulaPattern } from '../../../lib/http/request/csv.ts';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { withConnection } from '../../../lib/postgres/connection.ts';
import { recordedMigrations } from '../../../lib/postgres/migration-names.ts';
import { quoteIdentifier, quoteLiteral } from '../../../lib/postgres/quote.ts';
import { findTenant } from '../../registry/tenants.ts';
import { identityTables } from '../../schema/tenant-tables.ts';
import type { ArchiveManifest } from './archive-documents.ts';
import {
  archiveSettings,
  beginArchive,
  type ContentsOptions,
  type DatabaseContents,
  readContents,
  type SourceTable,
} from './database-contents.ts';
import { pagesOf, readSchemaPages } from './schema-pages.ts';
import { type ArchivePlan, writeArchive } from './write-archive.ts';

export interface ExportReport {
  slug: string;
  file: string;
  bytes: number;
  tables: { name: string; rows: number }[];
  /** The parts of the database that the export lacks. */
  leftOut: ArchiveManifest['leftOut'];
}

/**
 * Writes the data of a tenant into a tar file that can be read without our software: an archive
 * that is not sealed. It has the users, without their passwords, and no secrets of webhooks. A
 * text that a spreadsheet would run as a formula has an apostrophe before it. The tenant is
 * served meanwhile. The tables of its database are those of one moment, as are its people.
 * @param path of the file, which must not exist; only this login may read it
 * @throws {OperatorError} when there is no such tenant, or the file exists or cannot be written
 */
export async function exportTenant(
  installation: Installation,
  slug: string,
  path: string,
): Promise<ExportReport> {
  const tenant = await findTenant(installation, slug);
  const url = installation.servers.adminUrl(tenant.server, tenant.databaseName);
  const scratch = await makeScratchFolder(path);

  try {
    return await withConnection(
      url,
      data =>
        withConnection(
          installation.controlUrl,
          async control => {
            const plan = await planExport(data, control, tenant);
            return writeExport(plan, { slug, path, scratch });
          },
          { settings: archiveSettings },
        ),
      { settings: archiveSettings },
    );
  } catch (error) {
    const isDiskError = /^E(NOSPC|DQUOT|FBIG|IO|ROFS)$/.test(
      (error as NodeJS.ErrnoException).code ?? '',
    );
    throw isDiskError ? notWritten(path, error) : error;
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

interface ExportFile {
  readonly slug: string;
  readonly path: string;
  readonly scratch: string;
}

async function writeExport(
  plan: ArchivePlan,
  { slug, path, scratch }: ExportFile,
): Promise<ExportReport> {
  const temporary = join(scratch, 'export.tar');
  const output = createWriteStream(temporary, { mode: 0o600, flush: true });
  const { body, finished } = writeArchive(plan);

  await pipeline(body, output);
  const { tables, leftOut } = await finished;
  await rename(temporary, path);

  return {
    slug,
    file: path,
    bytes: output.bytesWritten,
    tables: tables.map(({ schema, name, rows }) => ({
      name: schema === 'public' ? name : `${schema}.${name}`,
      rows,
    })),
    leftOut,
  };
}

/** Tables of a tenant's database that an export leaves out, by the reason. */
const except: ContentsOptions['except'] = new Map<string, readonly string[]>([
  ['it describes the database itself', identityTables],
  ['it serves the service alone', ['table_sizes', 'idempotency_keys']],
  ['it has secrets', ['webhook_secrets']],
]);

async function planExport(
  data: pg.Client,
  control: pg.Client,
  { id, guid, slug, name, server }: Awaited<ReturnType<typeof findTenant>>,
): Promise<ArchivePlan> {
  const { snapshot, source } = await beginArchive(data);
  await beginArchive(control);
  const { rows } = await data.query(`select ${recordedMigrations} as recorded`);
  const tables = await readContents(data, { except, namesGenerated: true });
  const installation = await control.query<{ id: string }>('select id from installation');

  return {
    subject: {
      kind: 'export',
      installation: installation.rows[0]?.id ?? '',
      tenant: { guid, slug, name },
      name: null,
      time: snapshot.at,
      recipients: [],
    },
    server: server.name,
    snapshot,
    source,
    pages: pagesOf(await readSchemaPages('tenant'), rows[0]?.recorded ?? null, source.database),
    parts: [await defused(tables), await defused(await readPeople(control, id))],
    macKey: undefined,
  };
}

/** Reads a tenant's people from the control database: no passwords, sessions or keys. */
async function readPeople(client: pg.Client, tenantId: number): Promise<DatabaseContents> {
  const id = BigInt(tenantId);
  const queries = {
    users: `select u.id, u.guid, u.kind, u.email, u.first_name, u.last_name, r.name as role, u.scope, u.entity_id,
                   u.networks, u.invited_at, u.confirmed_at, u.disabled_at, u.created_at
              from users u join roles r on r.id = u.role_id where u.tenant_id = ${id} order by u.id`,
    roles: `select name, permissions from roles where tenant_id = ${id} order by name`,
    audit_log: `select id, created_at, user_id, user_guid, entity_id, action, resource, record_key, before, after, ip_address
                  from audit_log where tenant_id = ${id} order by id`,
  };

  const tables: SourceTable[] = [];
  for (const [name, query] of Object.entries(queries)) {
    const { fields } = await client.query(`select * from (${query}) as rows limit 0`);
    const { rows } = await client.query<{ types: string[]; count: number }>(
      `select (select count(*)::int from (${query}) as rows) as count,
              array(select format_type(oid, null) from unnest($1::oid[]) with ordinality as t (oid, n) order by n) as types`,
      [fields.map(({ dataTypeID }) => dataTypeID)],
    );
    const { types = [], count = 0 } = rows[0] ?? {};
    const columns = fields.map(field => field.name);
    tables.push({
      schema: 'people',
      name,
      columns,
      types,
      copied: `(${query})`,
      rows: count,
      checksum: null,
    });
  }

  return { client, tables, sequences: [], leftOut: [] };
}

/**
 * Returns contents in which no text is one that a spreadsheet runs. Numbers, dates and times
 * are left as they are: a negative number is no formula.
 */
async function defused(contents: DatabaseContents): Promise<DatabaseContents> {
  const types = [...new Set(contents.tables.flatMap(table => table.types))];
  const { rows } = await contents.client.query<{ type: string }>(
    `select name as type from unnest($1::text[]) as t (name)
      where (select typcategory from pg_type where oid = to_regtype(name)) in ('N', 'D', 'T', 'B')`,
    [types],
  );
  const harmless = new Set(rows.map(({ type }) => type));

  const tables = contents.tables.map(table => {
    const source = table.copied.startsWith('(')
      ? `${table.copied} as rows`
      : `${quoteIdentifier(table.schema)}.${quoteIdentifier(table.name)}`;
    const list = table.columns.map((column, index) => {
      const quoted = quoteIdentifier(column);
      if (harmless.has(table.types[index] ?? '')) return quoted;
      const text = `${quoted}::text`;
      return `case when ${text} ~ ${quoteLiteral(formulaPattern)} then '''' || ${text} else ${text} end as ${quoted}`;
    });

    const order = table.columns.includes('id') ? ' order by id' : '';
    return {
      ...table,
      copied: `(select ${list.join(', ')} from ${source}${order})`,
      checksum: null,
    };
  });

  return { ...contents, tables };
}

/** @throws {OperatorError} when the file exists */
export async function requireNoFile(path: string): Promise<void> {
  const exists = await stat(path).catch(() => undefined);
  if (exists) throw new OperatorError(`${path} exists already: remove it, or name another file`);
}

/** Creates a folder beside the file. */
async function makeScratchFolder(path: string): Promise<string> {
  await requireNoFile(path);

  return mkdtemp(join(dirname(path), '.export-')).catch(cause => {
    throw notWritten(path, cause);
  });
}

function notWritten(path: string, cause: unknown): OperatorError {
  const { code } = cause as NodeJS.ErrnoException;
  return new OperatorError(
    `${dirname(path)} cannot be written (${code}): name a file in another folder`,
    { cause },
  );
}
