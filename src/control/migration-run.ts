import { defineEntity, p } from '@mikro-orm/postgresql';

/** `abandoned`: its process ended without saying how. */
export type RunState = 'running' | 'succeeded' | 'failed' | 'halted' | 'abandoned';

/** `current`: there was nothing to migrate. `skipped`: its turn did not come, or was not seen to its end. */
export type OutcomeState = 'pending' | 'running' | 'migrated' | 'current' | 'failed' | 'skipped';

/** One run of migrations over the fleet. */
const MigrationRunSchema = defineEntity({
  name: 'MigrationRun',
  tableName: 'migration_runs',
  properties: {
    id: p.bigint('number').primary(),
    state: p.text().$type<RunState>().default('running'),
    /** The version that it brings tenants to. */
    head: p.text(),
    /** Tenants at the same time, on each server. */
    concurrency: p.integer(),
    canary: p.integer().nullable(),
    maxFailures: p.integer().nullable(),
    /** Login and host of the operator. */
    requestedBy: p.text(),
    startedAt: p.datetime().defaultRaw('now()'),
    finishedAt: p.datetime().nullable(),
  },
});
export class MigrationRun extends MigrationRunSchema.class {}
MigrationRunSchema.setClass(MigrationRun);

/** What became of one tenant in a run. */
const MigrationOutcomeSchema = defineEntity({
  name: 'MigrationOutcome',
  tableName: 'migration_outcomes',
  properties: {
    runId: p.bigint('number').primary(),
    tenantId: p.bigint('number').primary(),
    state: p.text().$type<OutcomeState>().default('pending'),
    fromVersion: p.text().nullable(),
    toVersion: p.text().nullable(),
    ms: p.integer().nullable(),
    error: p.text().nullable(),
    startedAt: p.datetime().nullable(),
    finishedAt: p.datetime().nullable(),
  },
});
export class MigrationOutcome extends MigrationOutcomeSchema.class {}
MigrationOutcomeSchema.setClass(MigrationOutcome);

/** What a schema at head looks like on one server: that of its template. */
const SchemaFingerprintSchema = defineEntity({
  name: 'SchemaFingerprint',
  tableName: 'schema_fingerprints',
  properties: {
    serverId: p.smallint().primary(),
    /** Of the migrations. */
    digest: p.text().primary(),
    head: p.text(),
    fingerprint: p.text(),
    /** Every object with its definition. */
    objects: p.json().$type<Record<string, string>>(),
    createdAt: p.datetime().defaultRaw('now()'),
  },
});
export class SchemaFingerprint extends SchemaFingerprintSchema.class {}
SchemaFingerprintSchema.setClass(SchemaFingerprint);

export const migrationRunEntities = [MigrationRun, MigrationOutcome, SchemaFingerprint];
