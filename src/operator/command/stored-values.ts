import type pg from 'pg';
import { isValidKey } from '../../control/key-lifetime.ts';
import { tenantFeatures } from '../../control/tenant-features.ts';
import { cleanText } from '../../lib/config/clean-text.ts';
import { normalPostgresUrl } from '../../lib/config/postgres-url.ts';
import { environment } from '../../lib/config/process-environment.ts';
import { projectPath } from '../../lib/config/project-path.ts';
import { readSecretFiles } from '../../lib/config/secret-files.ts';
import { connectionConfig } from '../../lib/postgres/connection.ts';
import { SessionClient } from '../../lib/postgres/session-client.ts';
import type { Queryable } from '../../lib/postgres/shared-connection.ts';

/** A word that the shell offers, and its meaning. */
export interface Candidate {
  readonly value: string;
  /** The text that a list shows in place of a value that people cannot read. */
  readonly label?: string;
  readonly description?: string;
}

const maxValues = 200;
/**
 * Characters that end a line of the candidates, or send a command to the terminal: a value with
 * one is not offered.
 */
const controlCharacters = /\p{Cc}+/gu;
const ofTenant = 'tenant_id = (select id from tenants where guid = tenant_named(given.slug))';

/**
 * The values that an argument or option can have, by its name. `given.slug` is the slug before
 * the argument.
 */
const queries = {
  slug: `select slug as value, name || ', ' || status as description from tenants`,
  server: `select name as value, case when on_control_server then 'the server of the control database' end as description
             from servers`,
  version: `select schema_version as value, count(*) || ' tenants' as description
              from tenants where schema_version is not null group by 1`,
  email: `select email as value, first_name || ' ' || last_name as description from users where kind = 'person' and ${ofTenant}`,
  role: `select name as value, null as description from roles where ${ofTenant}`,
  database: `select database_name as value, state || ', ' || origin as description from tenant_databases
               where state in ('filled', 'kept') and ${ofTenant}`,
  kid: `select kid as value, status as description from signing_keys where ${ofTenant}`,
  run: `select id::text as value, state || ', ' || requested_by as description from migration_runs`,
  client: `select id as value, name as description from api_clients where revoked_at is null and ${ofTenant}`,
  program: `select id::text as value, first_name as description from users where kind = 'program' and ${ofTenant}`,
  programKey: `select k.id::text as value, prefix || '… of ' || u.first_name as description
                 from program_keys k join users u on u.id = k.program_id where ${isValidKey} and k.${ofTenant}`,
  provider: `select id::text as value, name || ', ' || issuer as description from identity_providers where ${ofTenant}`,
  session: `select s.id::text as value, u.email as description from sessions s join users u on u.id = s.user_id
              where revoked_at is null and s.${ofTenant}`,
  feature: `select distinct name as value, null as description
              from (select unnest(features) as name from tenants union all
                    select unnest('{${tenantFeatures.join(',')}}'::text[])) features`,
  operator: 'select distinct operator as value, null as description from operator_actions',
  command: 'select distinct command as value, null as description from operator_actions',
  finding: `select finding ->> 'id' as value, finding ->> 'problem' as description
              from doctor_reports, jsonb_array_elements(report -> 'findings') finding`,
} as const;

export type StoredValue = keyof typeof queries;

/**
 * Reads the values of the control database that begin with a text. Loads neither the
 * configuration nor an entity manager, because the shell waits. Never rejects: values that
 * cannot be read within 1 s are not offered.
 * @param slug of the tenant whose values they are
 */
export async function storedValues(
  kind: StoredValue,
  start: string,
  slug: string | undefined,
): Promise<Candidate[]> {
  let client: pg.Client | undefined;
  try {
    client = new SessionClient(connectionConfig(await controlUrl(), 'completion'));
    client.on('error', () => {}); // the query rejects
    await client.connect();
    return await readStoredValues(client, kind, start, slug);
  } catch {
    return [];
  } finally {
    client?.end().catch(() => {});
  }
}

/**
 * Returns the `storedValues`, by statements on the control database. Rejects when they fail.
 */
export async function readStoredValues(
  statements: Queryable,
  kind: StoredValue,
  start: string,
  slug: string | undefined,
): Promise<Candidate[]> {
  const { rows } = await statements.query<{ value: string; description: string | null }>(
    `select value, description from (select $1::text as slug) given, lateral (${queries[kind]}) v
      where starts_with(value, $2) order by value limit ${maxValues}`,
    [slug ?? null, start],
  );
  return rows
    .filter(({ value }) => value.search(controlCharacters) < 0)
    .map(({ value, description }) => ({
      value,
      ...(description && { description: description.replace(controlCharacters, ' ') }),
    }));
}

/** Returns the URL of the control database, of an embedded one only if it runs. */
async function controlUrl(): Promise<string> {
  const variables = environment();
  const url =
    cleanText(variables.DATABASE_URL ?? '') || readSecretFiles(variables).values.DATABASE_URL;
  if (url) return normalPostgresUrl(url);
  const { runningEmbeddedUrl } = await import('../../lib/embedded/cluster.ts');
  return runningEmbeddedUrl(projectPath(cleanText(variables.DATA_DIR ?? '') || '.data'));
}
