import { createHash } from 'node:crypto';
import type { Server } from '../../control/control-entities.ts';
import type { ControlDatabase } from '../../control/database.ts';
import { SchemaFingerprint } from '../../control/migration-run.ts';
import { databaseUrl } from '../../control/server-urls.ts';
import { lockKey, lockSpaces, withLock } from '../../postgres/advisory-locks.ts';
import { withConnection } from '../../postgres/connection.ts';
import { sqlState } from '../../postgres/database-error.ts';
import { quoteIdentifier } from '../../postgres/quote.ts';
import { fingerprint, fingerprintMethod, schemaObjects } from '../../postgres/schema-fingerprint.ts';
import { ensureTemplate, migrationsDigest } from './template.ts';
import { tenantHead } from './tenant-head.ts';

/**
 * Returns the fingerprint of a tenant database at head on this server, which is the fingerprint of the template. It is
 * read once for each set of migrations and stored in the control database. Each server has its own, because PostgreSQL
 * versions may print the definition of an object differently.
 */
export async function headFingerprint(control: ControlDatabase, server: Server, adminUrl: string): Promise<string> {
  const key = { serverId: server.id, digest: await fingerprintKey() };
  const fields = ['fingerprint'] as const;
  const stored = await control.em.fork().findOne(SchemaFingerprint, key, { fields });
  if (stored) return stored.fingerprint;
  const template = await ensureTemplate(server, adminUrl);
  const read = await readTemplate(template, adminUrl).catch(async error => {
    if (sqlState(error) !== '3D000') throw error; // 3D000: another build has just dropped the template
    return readTemplate(await ensureTemplate(server, adminUrl), adminUrl);
  });
  const head = await tenantHead();
  await control.em.fork().upsert(SchemaFingerprint, { ...key, ...read, head }, { onConflictAction: 'ignore' });
  return read.fingerprint;
}

/**
 * The key of a stored fingerprint: the digest of the migrations, and a digest of the method that computes the
 * fingerprint.
 */
export async function fingerprintKey(): Promise<string> {
  const method = createHash('sha256').update(fingerprintMethod).digest('hex').slice(0, 8);
  return `${await migrationsDigest()}-${method}`;
}

/**
 * Returns every object of a tenant database at head on this server, with its definition.
 * @throws unless `headFingerprint` has stored them before
 */
export async function headObjects(control: ControlDatabase, server: Pick<Server, 'id'>): Promise<Map<string, string>> {
  const key = { serverId: server.id, digest: await fingerprintKey() };
  const { objects } = await control.em.fork().findOneOrFail(SchemaFingerprint, key);
  return new Map(Object.entries(objects));
}

/** Reads a copy of the template: the template itself is closed to connections, so that it can be copied at any time. */
async function readTemplate(template: string, adminUrl: string) {
  const copy = quoteIdentifier(`${template}_read`);
  return withLock(adminUrl, lockSpaces.template, lockKey(template), async client => {
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
