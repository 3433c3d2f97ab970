import type { Installation } from '../../control/installation.ts';
import { LaterBuildError } from '../../control/later-build.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { lockSpaces, withLock } from '../../lib/postgres/advisory-locks.ts';
import { errorText } from '../command/texts.ts';
import { findTenant, requireNamed } from '../registry/tenants.ts';
import { beginRun, endRun, recordOutcome, recordRunning } from './migration-runs.ts';
import {
  changeSchema,
  readSchemaState,
  readSchemaSteps,
  revertStep,
  type SchemaStep,
  versionOf,
} from './schema-steps.ts';
import {
  retryOnLockTimeout,
  setSchemaVersion,
  takeOutOfService,
  waitUntil,
  withTenantConnection,
} from './tenant-schema.ts';
import { becomeMember } from './tenant-sessions.ts';

/**
 * Returns the step that undoes the last migration of a tenant; undefined without a version.
 * @throws {LaterBuildError} when this build does not know the migration
 * @throws {OperatorError} when the migration refuses to be undone, with what to do instead
 */
export function findUndo(
  steps: readonly SchemaStep[],
  slug: string,
  version: string | null | undefined,
): SchemaStep | undefined {
  if (!version) return undefined;

  const step = steps.find(({ name }) => name === version);
  if (!step) throw new LaterBuildError(slug, version);
  if (step.refusal !== undefined) {
    throw new OperatorError(
      `${slug} was not rolled back: ${step.refusal.replaceAll('<slug>', slug)}`,
    );
  }
  return step;
}

/**
 * Undoes the last migration of one tenant in one transaction, and records that as a run. The
 * tenant's requests get 503 while its database changes, and from builds that need the migration
 * until it is migrated again.
 * @throws {OperatorError} when the migration cannot be undone; the tenant is then unchanged
 */
export async function rollback(
  installation: Installation,
  slug: string,
): Promise<{ from: string; to: string }> {
  const steps = await readSchemaSteps();
  const { id } = await findTenant(installation, slug);
  return withLock(installation.controlUrl, lockSpaces.tenant, id, async control => {
    await requireNamed(control, id, slug);
    const tenant = await findTenant(installation, slug);
    if (!tenant.schemaVersion) {
      // A killed rollback may have undone the migration already; another one would then undo
      // the migration before it.
      throw new OperatorError(`an earlier run on ${slug} was killed: migrate it first`);
    }
    return withTenantConnection(installation, tenant, async database => {
      const state = await readSchemaState(database);
      const { guid, applied } = state;
      if (guid !== tenant.guid) {
        throw new OperatorError(`the database of ${slug} belongs to another tenant`);
      }
      const [from, to] = [applied.at(-1), applied.at(-2)];
      const step = findUndo(steps, slug, from);
      if (!from || !to || !step?.down.length) {
        throw new OperatorError(`${slug} has no migration that can be undone`);
      }

      const startedAt = performance.now();
      const elapsed = () => Math.round(performance.now() - startedAt);
      const servers = new Map([[tenant.server.id, { fingerprint: '' }]]);
      const { id: run } = await beginRun(control, to, servers, { slugs: [slug] });
      await recordRunning(control, run, id);
      try {
        // the only step that can be refused comes first
        await becomeMember(database, tenant.roleName);
        const receivedAt = await takeOutOfService(control, database, tenant);
        const change = () => revertStep(database, step);
        const found = await retryOnLockTimeout(() =>
          changeSchema(database, { role: tenant.roleName, state, change }),
        );
        if (found) throw new OperatorError('another process has changed its schema meanwhile');
        await waitUntil(receivedAt);
      } catch (error) {
        const restored = await readSchemaState(database).catch(() => undefined);
        if (restored) await setSchemaVersion(control, id, versionOf(restored.applied, steps));
        const text = errorText(error);
        await recordOutcome(control, run, id, {
          state: 'failed',
          from,
          to: from,
          ms: elapsed(),
          error: text,
        });
        await endRun(control, run, 'failed', text);
        throw new OperatorError(`${slug} was not rolled back: ${text}`, { cause: error });
      }
      const { compatibleFrom } = versionOf(applied.slice(0, -1), steps);
      const done = { state: 'migrated', from, to, ms: elapsed() } as const;
      await recordOutcome(control, run, id, done, {
        version: to,
        compatibleFrom,
        fingerprint: undefined,
      });
      await endRun(control, run, 'succeeded', '');
      return { from, to };
    });
  });
}
