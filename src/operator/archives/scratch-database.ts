import { randomBytes } from 'node:crypto';
import type { Server } from '../../control/control-entities.ts';
import { databaseUrl } from '../../control/server-urls.ts';
import { withConnection } from '../../postgres/connection.ts';
import { loadMigrations, runMigrations } from '../../postgres/migration-steps.ts';
import { quoteIdentifier as quote } from '../../postgres/quote.ts';
import { copyTemplate } from '../databases/create-database.ts';
import { migrationSettings } from '../schema/template.ts';
import { ArchiveFault } from './format/archive-fault.ts';

/**
 * Runs `work` on a new database with the schema of one version, and drops it. Its name is random and never chosen by an
 * operator, so that no drill can touch the database of a tenant.
 * @param version the last migration that the database gets
 * @throws {ArchiveFault} when this build does not have the migration
 */
export async function withScratchDatabase<T>(
  server: Server,
  adminUrl: string,
  version: string,
  work: (database: string) => Promise<T>,
): Promise<T> {
  const migrations = await loadMigrations('tenant');
  const last = migrations.findIndex(({ name }) => name === version);
  if (last < 0) throw new ArchiveFault('wrong_contents', `it is at version ${version}, which this build does not know`);
  const name = `${server.prefix}_drill_${randomBytes(6).toString('hex')}`;
  return withConnection(adminUrl, async admin => {
    try {
      if (last === migrations.length - 1) await copyTemplate(admin, server, adminUrl, name);
      else await admin.query(`create database ${quote(name)} template template0 encoding 'UTF8'`);
      await admin.query(
        `revoke all on database ${quote(name)} from public; alter database ${quote(name)} allow_connections true`,
      );
      if (last < migrations.length - 1)
        await runMigrations(databaseUrl(adminUrl, name), migrations.slice(0, last + 1), migrationSettings(server));
      return await work(name);
    } finally {
      await admin.query(`drop database if exists ${quote(name)} with (force)`);
    }
  });
}

/** Drops the scratch databases that killed drills have left on a server. The caller holds the lock of drills. */
export async function dropScratchDatabases({ prefix }: Pick<Server, 'prefix'>, adminUrl: string): Promise<void> {
  await withConnection(adminUrl, async admin => {
    const { rows } = await admin.query<{ name: string }>('select datname as name from pg_database');
    const pattern = new RegExp(`^${prefix}_drill_[0-9a-f]{12}$`);
    for (const { name } of rows)
      if (pattern.test(name)) await admin.query(`drop database if exists ${quote(name)} with (force)`);
  });
}
