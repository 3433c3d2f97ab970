import { createHash } from 'node:crypto';
import type { ControlDatabase } from '../../control/database.ts';
import type { Server } from '../../control/fleet-entities.ts';
import { SchemaFingerprint } from '../../control/migration-run.ts';
import { databaseUrl } from '../../control/server-urls.ts';
import { acquireLock, lockKey, lockSpaces } from '../../postgres/advisory-locks.ts';
import { withConnection } from '../../postgres/connection.ts';
import { sqlState } from '../../postgres/database-error.ts';
import { migrationNames } from '../../postgres/migration-steps.ts';
import { quoteIdentifier } from '../../postgres/quote.ts';
import { fingerprint, fingerprintMethod, schemaObjects } from '../../postgres/schema-fingerprint.ts';
import { ensureTemplate, migrationsDigest } from './template.ts';

/**
 * The fingerprint that a tenant database at head has on this server: that of the template, which is read once for each
 * set of migrations and then kept in the control database. PostgreSQL versions may write definitions differently, so each
 * server has its own.
 */
export async function headFingerprint(control: ControlDatabase, server: Server, adminUrl: string): Promise<string> {
  const key = { serverId: server.id, digest: await fingerprintKey() };
  const fields = ['fingerprint'] as const;
  const kept = await control.em.fork().findOne(SchemaFingerprint, key, { fields });
  if (kept) return kept.fingerprint;
  const template = await ensureTemplate(server, adminUrl);
  const read = await readTemplate(template, adminUrl).catch(async error => {
    if (sqlState(error) !== '3D000') throw error; // another build has just dropped it
    return readTemplate(await ensureTemplate(server, adminUrl), adminUrl);
  });
  const version = (await migrationNames('tenant')).at(-1) ?? '';
  await control.em.fork().upsert(SchemaFingerprint, { ...key, ...read, head: version }, { onConflictAction: 'ignore' });
  return read.fingerprint;
}

/** What a kept fingerprint is of: these migrations, read in this way. */
export async function fingerprintKey(): Promise<string> {
  const method = createHash('sha256').update(fingerprintMethod).digest('hex').slice(0, 8);
  return `${await migrationsDigest()}-${method}`;
}

/** Every object that a tenant database at head has on this server, with its definition; `headFingerprint` was asked before. */
export async function headObjects(control: ControlDatabase, server: Pick<Server, 'id'>): Promise<Map<string, string>> {
  const key = { serverId: server.id, digest: await fingerprintKey() };
  const { objects } = await control.em.fork().findOneOrFail(SchemaFingerprint, key);
  return new Map(Object.entries(objects));
}

/** The template takes no connections, so that it can be copied at any time: a copy of it is read. */
async function readTemplate(template: string, adminUrl: string) {
  const copy = quoteIdentifier(`${template}_read`);
  return withConnection(adminUrl, async client => {
    await acquireLock(client, lockSpaces.template, lockKey(template));
    await client.query(`drop database if exists ${copy} with (force)`);
    await client.query(`create database ${copy} template ${quoteIdentifier(template)} strategy wal_log`);
    try {
      return await withConnection(databaseUrl(adminUrl, `${template}_read`), async inside => ({
        fingerprint: await fingerprint(inside),
        objects: Object.fromEntries(await schemaObjects(inside)),
      }));
    } finally {
      await client.query(`drop database if exists ${copy} with (force)`);
    }
  });
}
