import { defineEntity, p } from '@mikro-orm/postgresql';

/** `abandoned`: the process ended without recording a result. */
export type RunState = 'running' | 'succeeded' | 'failed' | 'halted' | 'abandoned';

/**
 * `current`: the tenant had nothing to migrate. `skipped`: the run ended before the tenant
 * started, or before it finished.
 */
export type OutcomeState = 'pending' | 'running' | 'migrated' | 'current' | 'failed' | 'skipped';

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
    /** The attributes of objects that are no part of the fingerprint (`schemaDetails`). */
    details: p.json().$type<Record<string, string>>().defaultRaw(`'{}'`),
    createdAt: p.datetime().defaultRaw('now()'),
  },
});
export class SchemaFingerprint extends SchemaFingerprintSchema.class {}
SchemaFingerprintSchema.setClass(SchemaFingerprint);
