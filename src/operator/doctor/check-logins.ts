import type pg from 'pg';
import { isoTime } from '../../lib/postgres/iso-time.ts';
import { quoteIdentifier as quote } from '../../lib/postgres/quote.ts';
import { passwordEnd } from '../schema/login-fault.ts';
import type { CheckContext } from './check-context.ts';
import { psqlCommand } from './psql-command.ts';

/** A login of the installation whose password ends soon, or has ended. */
export interface EndingLogin {
  readonly role: string;
  /** The time after which its password is not accepted, in the format of `Date.toISOString`. */
  readonly endsAt: string;
  readonly hasEnded: boolean;
}

const notice = '7 days';

/** Returns those of the logins whose password ends within a week, or has ended. */
export async function readEndingLogins(
  client: pg.Client,
  roles: readonly string[],
): Promise<EndingLogin[]> {
  const { rows } = await client.query<EndingLogin>(
    `select rolname as role, ${isoTime(passwordEnd)} as "endsAt", rolvaliduntil < now() as "hasEnded"
       from pg_roles
      where rolname = any ($1) and isfinite(rolvaliduntil) and rolvaliduntil < now() + interval '${notice}'
      order by rolname`,
    [roles],
  );

  return rows;
}

/**
 * Reports logins that PostgreSQL refuses soon, because their passwords have an end (`valid
 * until`), and the login of the service if it has been refused since its end. Those of tenants
 * that are refused already are found by a login (`checkTenants`).
 */
export function checkLogins(
  { tenants, report }: CheckContext,
  ending: readonly EndingLogin[],
): void {
  const slugs = new Map(tenants.map(({ roleName, slug }) => [roleName, slug]));

  for (const { role, endsAt, hasEnded } of ending) {
    const tenant = slugs.get(role);
    const statement = `alter role ${quote(role)} valid until 'infinity'`;

    if (!hasEnded) {
      report({
        check: 'login_ends',
        tenant,
        problem: `PostgreSQL will refuse login ${role} from ${endsAt} on, where its password ends`,
        remedy: `Let it end later, or not at all, as its owner or as a superuser: ${psqlCommand(statement)}`,
      });
    } else if (tenant === undefined) {
      report({
        check: 'login_fails',
        problem: `PostgreSQL refuses login ${role}, whose password was valid until ${endsAt}`,
        remedy: 'Let its password have no end',
        statements: [statement],
        alters: role,
      });
    }
  }
}
