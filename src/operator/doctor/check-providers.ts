import type pg from 'pg';
import { type Finding, toFinding } from './finding.ts';

/** A provider that no process has reached for an hour, while people tried to log in by it. */
export interface LostProvider {
  /** The slug of the tenant. */
  readonly tenant: string;
  /** The name of its server. */
  readonly server: string;
  readonly id: number;
  readonly name: string;
  /** Why its metadata or keys cannot be read. */
  readonly failure: string;
}

/** Returns the enabled providers of active tenants that no process has reached for an hour. */
export async function readLostProviders(client: pg.Client): Promise<LostProvider[]> {
  const { rows } = await client.query<LostProvider>(
    `select t.slug as tenant, s.name as server, p.id::float8 as id, p.name, ps.failure
       from provider_states ps join identity_providers p on p.id = ps.provider_id
       join tenants t on t.id = p.tenant_id join servers s on s.id = t.server_id
      where ps.failing_since < now() - interval '1 hour' and p.is_enabled and t.status = 'active'
      order by t.slug, p.id`,
  );

  return rows;
}

/** Reports providers that cannot be reached: their people cannot log in. */
export function checkProviders(lost: readonly LostProvider[]): Finding[] {
  return lost.map(({ tenant, server, id, name, failure }) =>
    toFinding(server, {
      check: 'provider_unreachable',
      tenant,
      problem: `the provider ${name} (${id}) of ${tenant} has not been reached for an hour: ${failure}`,
      remedy:
        'Tell the tenant. One in a private network needs a place in TRUSTED_PROVIDERS, and one whose ' +
        'certificate is of an authority of your own, NODE_EXTRA_CA_CERTS. Show it: ' +
        `bin/backoffice identity-provider list ${tenant}`,
    }),
  );
}
