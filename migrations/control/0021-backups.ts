import { Migration } from '@mikro-orm/migrations';

/** The data keys of backups, the ledger of archives, the runs that make them, and the signed records of purges. */
export class Backups extends Migration {
  static readonly compatible = true;

  override up(): void {
    this.addSql(`
      create table backup_keys (
        id uuid primary key default gen_random_uuid(),
        tenant_id bigint unique references tenants on delete cascade,
        sealed bytea not null,
        fingerprint text not null unique,
        created_at timestamptz not null default now()
      )`);
    this.addSql(
      `comment on table backup_keys is 'never part of an archive: the keyring file of the backup target has them'`,
    );
    this.addSql(
      `comment on column backup_keys.tenant_id is 'null: a key of archives of the control database; the newest one seals'`,
    );
    this.addSql(`
      create table archives (
        id uuid primary key,
        tenant_guid uuid,
        slug text,
        target text not null,
        file text not null unique,
        state text not null default 'writing' check (state in ('writing', 'complete', 'removing')),
        key_fingerprint text not null,
        server text not null,
        database_name text not null,
        proof text,
        schema_version text,
        schema_fingerprint text,
        snapshot_at timestamptz not null default now(),
        completed_at timestamptz,
        rows bigint,
        bytes bigint,
        unchanged_at timestamptz,
        verified_at timestamptz,
        proved_at timestamptz,
        fault text
      )`);
    this.addSql('create index archives_tenant_guid_snapshot_at_index on archives (tenant_guid, snapshot_at desc)');
    this.addSql(
      `comment on column archives.tenant_guid is 'null: the control database; no reference, because the archives of a purged tenant stay listed until they are removed'`,
    );
    this.addSql(`comment on column archives.target is 'the BACKUP_TARGET that has the file'`);
    this.addSql(
      `comment on column archives.proof is 'counters of the database, read before the snapshot; null: they prove nothing'`,
    );
    this.addSql(
      `comment on column archives.unchanged_at is 'the last run that found the database unchanged since the snapshot'`,
    );
    this.addSql(`comment on column archives.verified_at is 'when every byte was checked'`);
    this.addSql(`comment on column archives.proved_at is 'when it was restored and compared'`);
    this.addSql(`comment on column archives.fault is 'what the last verification or drill found'`);
    this.addSql(`
      create table backup_runs (
        id bigint generated always as identity primary key,
        state text not null default 'running' check (state in ('running', 'succeeded', 'failed', 'abandoned')),
        requested_by text not null,
        started_at timestamptz not null default now(),
        finished_at timestamptz,
        archived integer not null default 0,
        unchanged integer not null default 0,
        failed integer not null default 0,
        bytes bigint not null default 0
      )`);
    this.addSql('alter table purged_tenants add column record text, add column signature bytea');
    this.addSql(`comment on column purged_tenants.record is 'what was destroyed, when and by whom, as JSON'`);
    this.addSql(
      `comment on column purged_tenants.signature is 'Ed25519, of the bytes of the record, by the key that the record names'`,
    );
  }

  override down(): void {
    this.addSql('alter table purged_tenants drop column signature, drop column record');
    this.addSql('drop table backup_runs, archives, backup_keys');
  }
}
