import { defineEntity, p } from '@mikro-orm/postgresql';

/** `abandoned`: the process ended without recording a result. */
export type RunState = 'running' | 'succeeded' | 'failed' | 'halted' | 'abandoned';

/**
 * `current`: the tenant had nothing to migrate. `skipped`: the run ended before the tenant started, or before it
 * finished.
 */
export type OutcomeState = 'pending' | 'running' | 'migrated' | 'current' | 'failed' | 'skipped';

/** One run of migrations over the fleet. */
const MigrationRunSchema = defineEntity({
  name: 'MigrationRun',
  tableName: 'migration_runs',
  properties: {
    id: p.bigint('number').primary(),
    state: p.text().$type<RunState>().default('running'),
    /** The version that the run migrates tenants to. */
    head: p.text(),
    /** Maximum number of tenants that are migrated at the same time on each server. */
    concurrency: p.integer(),
    canary: p.integer().nullable(),
    maxFailures: p.integer().nullable(),
    /** Login and host of the operator. */
    requestedBy: p.text(),
    startedAt: p.datetime().defaultRaw('now()'),
    finishedAt: p.datetime().nullable(),
  },
});
class MigrationRun extends MigrationRunSchema.class {}
MigrationRunSchema.setClass(MigrationRun);

/** The result of a run for one tenant. */
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
class MigrationOutcome extends MigrationOutcomeSchema.class {}
MigrationOutcomeSchema.setClass(MigrationOutcome);

/** The schema of the template on one server, which is the schema at head. */
const SchemaFingerprintSchema = defineEntity({
  name: 'SchemaFingerprint',
  tableName: 'schema_fingerprints',
  properties: {
    serverId: p.smallint().primary(),
    /** Digest of the migrations that made the template. */
    digest: p.text().primary(),
    head: p.text(),
    fingerprint: p.text(),
    /** The definition of each schema object, by its name. */
    objects: p.json().$type<Record<string, string>>(),
    createdAt: p.datetime().defaultRaw('now()'),
  },
});
export class SchemaFingerprint extends SchemaFingerprintSchema.class {}
SchemaFingerprintSchema.setClass(SchemaFingerprint);

export const migrationRunEntities = [MigrationRun, MigrationOutcome, SchemaFingerprint];
