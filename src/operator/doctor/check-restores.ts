import type { CheckedTenant, ControlFacts, RestoreFacts } from './control-facts.ts';
import { type Finding, toFinding } from './finding.ts';

/** Reports swaps and restores of tenants that no process continues. */
export function checkRestores({ restores, tenants, isBusy }: ControlFacts): Finding[] {
  return restores.flatMap(restore => {
    const tenant = tenants.find(({ id }) => id === restore.tenantId);
    if (!tenant || isBusy(tenant)) return [];
    return [restore.kind === 'swap' ? unfinishedSwap(restore, tenant) : unfinishedRestore(tenant)];
  });
}

function unfinishedSwap({ isFenced }: RestoreFacts, { slug, server }: CheckedTenant): Finding {
  const state = isFenced ? ', and its requests get 503 meanwhile' : '';
  return toFinding(server.name, {
    check: 'unfinished_swap',
    tenant: slug,
    problem: `a swap of ${slug} with its restored data was begun, and no process continues${state}`,
    remedy:
      `Go on with it: npx backoffice restore swap ${slug}. ` +
      `Or keep its former data: npx backoffice restore back ${slug}`,
  });
}

function unfinishedRestore({ slug, server }: CheckedTenant): Finding {
  return toFinding(server.name, {
    check: 'unfinished_restore',
    tenant: slug,
    problem: `the lost database of ${slug} is not completely restored, and no process continues; its requests get 503`,
    remedy: `Restore it again: npx backoffice restore ${slug} --lost`,
  });
}
