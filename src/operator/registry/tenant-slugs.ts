import type { EntityManager } from '@mikro-orm/postgresql';
import type { ControlStatements } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { sqlState } from '../../lib/postgres/database-error.ts';
import { isoTime } from '../../lib/postgres/iso-time.ts';
import type { Fields } from '../command/operation-fields.ts';

const uniqueViolation = '23505';

/** The tenant that has or had a slug. */
interface SlugHolder {
  readonly guid: string;
  /** Null for a tenant of which a restored control database knows only the slug. */
  readonly name: string | null;
  /** The present slug of the tenant; null for a tenant that is purged. */
  readonly present: string | null;
  /**
   * `alias`: a former slug that leads to the tenant; `reserved`: one that leads nowhere, and is
   * given to no other tenant by itself.
   */
  readonly state: 'present' | 'alias' | 'reserved';
  /** The time at which an alias ends, or a slug became reserved. */
  readonly aliasUntil: string | null;
}

/** Returns the tenant that has or had a slug; undefined for a free slug. */
export async function findSlugHolder(
  { statements }: ControlStatements,
  slug: string,
): Promise<SlugHolder | undefined> {
  const { rows } = await statements.query<SlugHolder>(
    `select tenant_guid as guid, t.slug as present, ${isoTime('alias_until')} as "aliasUntil",
            coalesce(t.name, (select p.name from purged_tenants p where p.guid = tenant_guid limit 1)) as name,
            case when alias_until is null then 'present' when alias_until > now() then 'alias' else 'reserved' end as state
       from tenant_slugs s left join tenants t on t.guid = tenant_guid
      where s.slug = $1 and (is_served or alias_until is null or alias_until > now())`,
    [slug],
  );
  const [found] = rows;

  return found;
}

/** `Acme Ltd (0a1b…) until 2026-12-28; it is newname now` */
export function holderText({ guid, name, present, aliasUntil }: SlugHolder): string {
  const gone = name === null ? 'this control database does not know it' : 'it is purged';
  const now = present === null ? gone : `it is ${present} now`;
  const until = aliasUntil === null ? '' : ` until ${dayOf(aliasUntil)}`;

  return `${name ?? 'a tenant'} (${guid})${until}; ${now}`;
}

/**
 * Checks that a tenant may get a slug.
 * @param guid of a tenant that may have had the slug itself
 * @throws {OperatorError} when the slug is reserved, or the present one or an alias of another
 *   tenant
 */
export async function requireFreeSlug(
  control: ControlStatements,
  slug: string,
  guid?: string,
): Promise<void> {
  const holder = await findSlugHolder(control, slug);
  if (holder === undefined || holder.guid === guid) return;

  if (holder.state !== 'reserved') {
    const what = holder.state === 'present' ? 'the slug' : 'an alias';
    throw new OperatorError(
      `${slug} is ${what} of ${holder.name} (${holder.guid}): choose another slug`,
    );
  }

  throw new OperatorError(
    `${slug} was the slug of ${holderText(holder)}. It is reserved, because programs of that company may still ` +
      'send their logins to it. Choose another slug. To give it to a new tenant all the same: ' +
      `bin/backoffice provision ${slug} --reuse-slug`,
  );
}

/**
 * Returns the error of a command for an error of a statement that gives a tenant a slug: another
 * command may have given it to another tenant since `requireFreeSlug`.
 */
export function takenMeanwhile(error: unknown, slug: string): unknown {
  if (sqlState(error) !== uniqueViolation) return error;

  return new OperatorError(
    `${slug} was given to another tenant meanwhile, or is reserved since: nothing was changed`,
    { cause: error },
  );
}

/**
 * Gives a slug that is reserved to a tenant which is inserted next, in the same transaction. It
 * stays known as a slug that programs use: without that, it would be free for everybody if the
 * tenant is purged before it is served.
 */
export async function takeReservedSlug(
  tx: EntityManager,
  slug: string,
  guid: string,
): Promise<void> {
  await tx.execute(
    'update tenant_slugs set tenant_guid = ? where slug = ? and alias_until <= now()',
    [guid, slug],
  );
}

/**
 * Replaces aliases, among the values of an operation, by the present slugs of their tenants.
 * @param warn takes a sentence about each alias
 * @throws {OperatorError} when a slug is one that its tenant had, and is no alias any more
 */
export async function resolveSlugs(
  control: ControlStatements,
  fields: Fields,
  given: Readonly<Record<string, unknown>>,
  warn: (text: string) => void,
): Promise<Readonly<Record<string, unknown>>> {
  const resolved = { ...given };

  for (const [name, { kind }] of Object.entries(fields)) {
    const value = given[name];
    if (kind !== 'slug' || value === undefined) continue;

    const present: string[] = [];
    for (const slug of [value].flat().map(String)) {
      present.push(await presentSlug(control, slug, warn));
    }
    resolved[name] = Array.isArray(value) ? [...new Set(present)] : present[0];
  }

  return resolved;
}

async function presentSlug(
  control: ControlStatements,
  slug: string,
  warn: (text: string) => void,
): Promise<string> {
  const holder = await findSlugHolder(control, slug);
  const { present = null, state, aliasUntil } = holder ?? {};
  if (present === null || state === 'present') return slug;

  if (state === 'reserved') {
    throw new OperatorError(
      `There is no tenant ${slug} any more: its slug is ${present}. Name it by that: bin/backoffice show ${present}`,
    );
  }

  warn(`${slug} is a former slug of ${present}, and leads to it until ${dayOf(aliasUntil ?? '')}`);
  return present;
}

/** The day of a time in ISO 8601. */
const dayOf = (time: string): string => time.slice(0, 10);
