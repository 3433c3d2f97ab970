import { type Html, html } from '../../lib/html/html.ts';
import { explain } from '../../lib/log/operator-error.ts';
import type { ArchiveSummary } from '../backup/list-archives.ts';
import { targetLimits } from '../backup/target/target-calls.ts';
import type { PageRequest } from './console-page.ts';

const maxArchives = 60;
/** The limits for a page, which does not wait longer for a silent target. */
const pageLimits = { ...targetLimits, maxSilenceMs: 3_000 };

/**
 * Returns the newest complete archives of a tenant, and objects of its folder that are none;
 * nothing, and a note, when the target cannot be listed.
 */
export async function listInTarget(
  control: PageRequest['control'],
  guid: string,
): Promise<{
  archives: readonly ArchiveSummary[];
  others: readonly ArchiveSummary[];
  note: Html;
}> {
  const { openTarget } = await import('../backup/target/open-target.ts');
  const { listArchives } = await import('../backup/list-archives.ts');

  try {
    const { backup } = control.config;
    const target = await openTarget(backup, pageLimits);
    const found = await listArchives(control, target, guid, backup.recipients);
    const [archives, others] = [true, false].map(isComplete =>
      found.filter(({ state }) => (state === 'complete') === isComplete).slice(0, maxArchives),
    );
    return { archives: archives ?? [], others: others ?? [], note: html`` };
  } catch (error) {
    return {
      archives: [],
      others: [],
      note: html`<p class="note">The target cannot be listed here: ${explain(error)}</p>`,
    };
  }
}
