import type pg from 'pg';
import { owners, type SecretBox } from '../../control/secret-box.ts';
import { type Finding, toFinding } from './finding.ts';

/** A person with an authenticator app whose key does not open. */
export interface ClosedFactor {
  /** The slug of the tenant. */
  readonly tenant: string;
  /** The name of its server. */
  readonly server: string;
  readonly email: string;
}

/** Factors that are read at a time. */
const batch = 5_000;

/** Opens the key of each authenticator app, and returns those that do not open. */
export async function readClosedFactors(
  client: pg.Client,
  secrets: SecretBox,
): Promise<ClosedFactor[]> {
  const closed: ClosedFactor[] = [];
  let after: string | undefined;

  do {
    const { rows } = await client.query<
      ClosedFactor & { id: string; guid: string; secret: Buffer }
    >(
      `select f.id, f.secret, t.guid, t.slug as tenant, s.name as server, u.email
         from factors f join tenants t on t.id = f.tenant_id join servers s on s.id = t.server_id
         join users u on u.id = f.user_id and u.tenant_id = f.tenant_id
        where f.secret is not null and ($1::uuid is null or f.id > $1) order by f.id limit ${batch}`,
      [after],
    );
    for (const { id, guid, secret, tenant, server, email } of rows) {
      if (!opens(secrets, secret, owners.factor(guid, id))) closed.push({ tenant, server, email });
    }
    after = rows.length === batch ? rows.at(-1)?.id : undefined;
  } while (after !== undefined);

  return closed;
}

function opens(secrets: SecretBox, sealed: Buffer, owner: string): boolean {
  try {
    secrets.open(sealed, owner);
    return true;
  } catch {
    return false;
  }
}

/** Reports people who cannot log in, because the key of their app does not open. */
export function checkFactors(closed: readonly ClosedFactor[]): Finding[] {
  return closed.map(({ tenant, server, email }) =>
    toFinding(server, {
      check: 'secret_does_not_open',
      tenant,
      problem: `the authenticator app of ${email} cannot be decrypted with MASTER_KEY`,
      remedy:
        'Remove the second factors of the person, who sets one up anew: ' +
        `bin/backoffice user factors reset ${tenant} ${email} --reason "key cannot be decrypted"`,
    }),
  );
}
