import type { TenantStatus } from '../../control/control-entities.ts';
import type { ControlStatements } from '../../control/installation.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { requireNotPurging } from './purging.ts';
import { readTenant, type TenantSummary } from './read-tenants.ts';

/**
 * Every transition between states that an operator can make. Only an `active` tenant is served.
 */
const transitions: Record<
  Transition,
  { from: readonly TenantStatus[]; to: TenantStatus; participle: string }
> = {
  suspend: { from: ['active'], to: 'suspended', participle: 'suspended' },
  resume: { from: ['suspended'], to: 'active', participle: 'resumed' },
  delete: { from: ['active', 'suspended'], to: 'deleted', participle: 'deleted' },
  undelete: { from: ['deleted'], to: 'active', participle: 'undeleted' },
};

export type Transition = 'suspend' | 'resume' | 'delete' | 'undelete';

/** Returns the decisions that can be made about a tenant that has a state. */
export function transitionsFrom(status: TenantStatus): Transition[] {
  const names = Object.keys(transitions) as Transition[];

  return names.filter(name => transitions[name].from.includes(status));
}

/** The effect of a transition. */
interface StateChange {
  guid: string;
  /** After the change, the same as `to`. */
  from: TenantStatus;
  to: TenantStatus;
}

/**
 * Changes the state of a tenant. Every process applies it within a second; running requests are
 * finished. A tenant that is in the requested state already stays unchanged.
 * @param isDryRun true to return what would change, and to change nothing
 * @throws {OperatorError} when there is no such tenant, or its state does not allow the
 *   transition
 */
export async function changeState(
  control: ControlStatements,
  slug: string,
  transition: Transition,
  isDryRun = false,
): Promise<StateChange> {
  const { from, to } = transitions[transition];
  if (!isDryRun) {
    await control.statements.query(
      'update tenants set status = $1, updated_at = now() where slug = $2 and status = any ($3::text[]) and purging_at is null',
      [to, slug, `{${from.join(',')}}`],
    );
  }
  const tenant = await readTenant(control, slug);
  await requireNotPurging(control, slug);
  requireState(tenant, transition);
  return { guid: tenant.guid, from: tenant.status, to };
}

/**
 * Lets a tenant reach nobody outside, or ends that: an isolated tenant sends no mail, and its
 * legacy clients and keys of programs are refused. Every process applies it within a second.
 * @param isDryRun true to change nothing
 * @returns the tenant as it was before
 * @throws {OperatorError} when there is no such tenant
 */
export async function isolate(
  control: ControlStatements,
  slug: string,
  isolated: boolean,
  isDryRun: boolean,
): Promise<TenantSummary> {
  const tenant = await readTenant(control, slug);
  if (!isDryRun) {
    await control.statements.query(
      'update tenants set isolated = $1::boolean, updated_at = now() where slug = $2',
      [String(isolated), slug],
    );
  }
  return tenant;
}

function requireState({ slug, status }: TenantSummary, transition: Transition): void {
  const { from, to, participle } = transitions[transition];
  if (status === to || from.includes(status)) return;
  throw new OperatorError(
    `${slug} is ${status}: only a tenant that is ${from.join(' or ')} can be ${participle}`,
  );
}
