import { OperatorError } from '../../operator-error.ts';
import type { SwapResult } from '../restore/swap/swap.ts';
import { findTenant } from '../tenants/tenants.ts';
import { defineOperation, type Operation } from './operation.ts';
import type { Context } from './operation-context.ts';
import { argument, flag, option, optionalArgument, type Values } from './operation-fields.ts';
import { parsePositive } from './parse-positive.ts';
import { restoreData } from './restore-data.ts';
import { fieldsText, tableText } from './text-table.ts';

const fields = {
  slug: optionalArgument('slug', { neededUnless: 'lost' }),
  archive: option('<id>', 'the archive to restore, or the beginning of its id (default: the newest)'),
  at: option('<time>', 'the moment to restore, with its zone, such as 2026-11-21T14:05:00Z; needs backup base'),
  to: option('<new-slug>', 'slug of the new tenant that gets the data'),
  lost: flag('the server has lost the database of the tenant: restore it in a new one, and serve it'),
  server: option('<name>', 'with --lost: every tenant of this server whose database is lost', { kind: 'server' }),
  all: flag('with --lost: every tenant whose database is lost'),
  concurrency: option('<n>', 'with --server or --all: tenants restored at the same time', {
    parse: parsePositive,
    default: 4,
  }),
};
type RestoreFields = Values<typeof fields>;
type OneTenant = RestoreFields & { slug: string };

const restore = defineOperation({
  name: 'restore',
  description: 'bring a deleted tenant back into service, or restore earlier data of a tenant beside it',
  fields,
  examples: [
    'restore acme # undo delete: serve the tenant again',
    'restore acme --to acme-old # its newest archive, as a new tenant beside it',
    'restore acme --archive 0b7e --to acme-old # an older archive: backup list acme',
    'restore acme --at 2026-11-21T14:05:00Z --to acme-old # its data of that moment; needs backup base',
    'restore acme --lost # its database is lost: put its newest archive in place',
    'restore --lost --server second # those of all tenants of a server that is new and empty',
  ],
  help: `The new tenant is suspended and isolated, and has no users and legacy clients. restore diff then shows what was added,
changed and removed since, restore swap puts the restored data in place, and restore back undoes that.`,
  access: values => (isUndelete(values) ? 'statements' : 'installation'),
  effect: 'changes',
  isPatient: ({ to }) => to !== undefined,
  json: 'print one document on stdout; with --server or --all JSON lines: each tenant, and at the end the counts',
  async run(values, { installation, ...context }) {
    const { slug } = values;
    requireOneScope(values);
    if (!('control' in installation)) {
      if (slug === undefined) throw new OperatorError('Name a tenant', { usage: true });
      return undelete(slug, { installation, ...context });
    }
    if (slug === undefined) {
      const { restoreLostFleet } = await import('./restore-lost-fleet.ts');
      return restoreLostFleet(values, { installation, ...context });
    }
    return values.lost
      ? restoreLost({ ...values, slug }, { installation, ...context })
      : restoreAside({ ...values, slug }, { installation, ...context });
  },
});

/** @throws {OperatorError} unless the fields name a tenant, or the lost ones of a server or of all, and no data of one */
function requireOneScope({ slug, at, archive, to, lost, server, all }: RestoreFields): void {
  const isFleet = server !== undefined || all;
  if (isFleet && !lost) throw new OperatorError('Give --server and --all together with --lost', { usage: true });
  if (isFleet && slug !== undefined)
    throw new OperatorError('Give either a tenant, or --server or --all', { usage: true });
  if (isFleet && [at, archive, to].some(value => value !== undefined))
    throw new OperatorError('Give --archive, --at and --to together with a tenant', { usage: true });
}

function isUndelete({ at, archive, to, lost }: RestoreFields): boolean {
  return !lost && [at, archive, to].every(value => value === undefined);
}

async function undelete(slug: string, { installation, output }: Context<'statements'>): Promise<void> {
  const { changeState } = await import('../tenants/transitions.ts');
  const { findDatabase } = await import('../tenants/find-database.ts');
  const { guid, status } = await changeState(installation, slug, 'restore');
  const { server, exists } = await findDatabase(installation, guid);
  if (exists === undefined)
    output.warn(
      `Server ${server} cannot be queried, so it is not known whether the database of ${slug} exists. ` +
        'Check both: npx backoffice doctor',
    );
  output.result({ slug, guid, status, isDatabaseLost: exists === undefined ? null : !exists }, () =>
    exists === false
      ? `${slug} is ${status}, but it is not served: its database does not exist or is incomplete. ` +
        `Restore it: npx backoffice restore ${slug} --lost`
      : `${slug} is ${status}.`,
  );
}

async function restoreAside({ slug, to, at, archive }: OneTenant, context: Context<'installation'>) {
  const { installation, output, progress } = context;
  if (to === undefined) throw new OperatorError('Give the slug of the new tenant: --to <new-slug>', { usage: true });
  const { copyFrom } = await import('../tenants/purging.ts');
  const { createSideTenant, requireFreeSlug } = await import('../restore/side-tenant.ts');
  await requireFreeSlug(installation, to);
  const source = await findTenant(installation, slug);
  const document = await copyFrom(installation, source, to, () =>
    restoreData(installation, source, { at, archive, destination: `--to ${to}` }, progress, data =>
      createSideTenant(installation, source, to, data),
    ),
  );
  output.result({ ...document, source: slug }, () =>
    [fieldsText(document), '', `Compare it with ${slug}: npx backoffice restore diff ${to}`].join('\n'),
  );
}

async function restoreLost({ slug, to, at, archive }: OneTenant, context: Context<'installation'>) {
  const { installation, output, progress } = context;
  if (to !== undefined) throw new OperatorError('Give either --lost or --to', { usage: true });
  const { requireLost, restoreLostTenant } = await import('../restore/lost/restore-lost-tenant.ts');
  const source = await findTenant(installation, slug);
  await requireLost(installation, source);
  const document = await restoreData(installation, source, { at, archive, destination: '--lost' }, progress, data =>
    restoreLostTenant(installation, slug, data),
  );
  output.result(document, () => fieldsText(document));
}

const pair = { slug: argument('slug', { description: 'the tenant, or the restored tenant beside it' }) };

const diff = defineOperation({
  name: 'restore diff',
  description: 'show the rows that a tenant has added, changed and removed since its restored data',
  fields: pair,
  examples: ['restore diff acme'],
  access: 'installation',
  effect: 'reads',
  async run({ slug }, { installation, output, progress }) {
    const { compareTenants } = await import('../restore/compare-tenants.ts');
    const { findRestoredPair } = await import('../restore/find-side.ts');
    const { tenant, side, restoredFrom, isSwapped } = await findRestoredPair(installation, slug);
    const [now, before] = isSwapped ? [side, tenant] : [tenant, side];
    progress.step(`comparing ${tenant.slug} with ${side.slug}`);
    const tables = await compareTenants(installation, now, before);
    const document = { tenant: tenant.slug, side: side.slug, restoredFrom, isSwapped, tables };
    output.result(document, () =>
      tableText(
        tables.map(({ keys: _, ...counts }) => counts),
        `${tenant.slug} and ${side.slug} have the same data.`,
      ),
    );
  },
});

const defineSwap = (name: string, toRestored: boolean, more: Pick<Operation, 'description' | 'examples'>): Operation =>
  defineOperation({
    ...more,
    name: `restore ${name}`,
    fields: pair,
    access: 'installation',
    effect: 'destroys',
    async plan({ slug }, { installation }) {
      const { findRestoredPair } = await import('../restore/find-side.ts');
      const { tenant, side, restoredFrom, isSwapped } = await findRestoredPair(installation, slug);
      const which = toRestored ? `its data of ${restoredFrom}` : 'its former data';
      const document = { tenant: tenant.slug, side: side.slug, restoredFrom, isSwapped, state: 'planned' };
      return {
        document,
        text: () =>
          isSwapped === toRestored
            ? `${tenant.slug} has ${which} already.`
            : `${tenant.slug} would get ${which}, and ${side.slug} keep what ${tenant.slug} has now.`,
        confirm: { name: tenant.slug, consequence: `gets ${which}; ${side.slug} keeps what it has now` },
      };
    },
    async run({ slug }, { installation, output, progress }) {
      const { swapTenants } = await import('../restore/swap/swap.ts');
      const { createFenceGuard } = await import('../move/fence-guard.ts');
      const observers = { onStep: (step: string) => progress.step(step), guard: createFenceGuard('swap') };
      const result = await swapTenants(installation, slug, toRestored, observers);
      output.result(result, () => swapText(result));
    },
  });

export const operations = [
  restore,
  diff,
  defineSwap('swap', true, {
    description: 'put the restored data of a tenant in place; its requests wait meanwhile',
    examples: ['restore swap acme --reason "wrong import on Monday"'],
  }),
  defineSwap('back', false, {
    description: 'undo swap: give a tenant its former data back',
    examples: ['restore back acme'],
  }),
];

function swapText({ tenant, side, isSwapped, pauseMs }: SwapResult): string {
  const waited = `Its requests waited for ${Math.round(pauseMs)} ms.`;
  return isSwapped
    ? `${tenant} has the restored data. ${waited} ${side} keeps the former data; undo it: npx backoffice restore back ${tenant}`
    : `${tenant} has its former data. ${waited}`;
}
