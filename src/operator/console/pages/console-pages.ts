import type { Router } from '@koa/router';
import type { Context } from 'koa';
import type { Html } from '../../../docs/html.ts';
import { sendPage } from '../console-page.ts';
import type { ConsoleServices, PageRequest } from '../console-services.ts';
import { capacityPage } from './capacity.ts';
import { findingsPage } from './findings.ts';
import { nowPage } from './now.ts';
import { logPage } from './operator-log.ts';
import { recoveryPage, tenantRecoveryPage } from './recovery.ts';
import { rolloutPage, rolloutsPage } from './rollouts.ts';
import { tenantsPage } from './tenant-list.ts';
import { tenantPage } from './tenant-page.ts';

/** A view of what the control database has. */
type View = (request: PageRequest) => Promise<{ readonly title: string; readonly main: Html }>;

const views: Readonly<Record<string, View>> = {
  '/': nowPage,
  '/tenants': tenantsPage,
  '/tenants/:slug': tenantPage,
  '/rollouts': rolloutsPage,
  '/rollouts/:id': rolloutPage,
  '/recovery': recoveryPage,
  '/recovery/:slug': tenantRecoveryPage,
  '/findings': findingsPage,
  '/capacity': capacityPage,
  '/log': logPage,
};

/** Adds the pages that only show something. */
export function addPages(router: Router, services: ConsoleServices): void {
  for (const [path, view] of Object.entries(views))
    router.get(path, async (ctx: Context) => {
      const query = (name: string) => new URLSearchParams(ctx.querystring).get(name)?.trim() || undefined;
      sendPage(ctx, services.shell, await view({ services, params: ctx.params, query }));
    });
}
