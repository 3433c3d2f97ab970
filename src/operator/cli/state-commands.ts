import { createInterface } from 'node:readline/promises';
import type { Command } from 'commander';
import { createPasswords } from '../../auth/passwords.ts';
import { createAnnouncer } from '../../control/announcer.ts';
import { OperatorError } from '../../operator-error.ts';
import { cloneTenant } from '../provisioning/clone.ts';
import {
  changeState,
  purgeTenant,
  requirePurgeable,
  requireTransition,
  type Transition,
} from '../tenants/tenant-states.ts';
import { findTenant, summarise } from '../tenants/tenants.ts';
import { printFields, printJson, withInstallation } from './command.ts';
import { during } from './spinner.ts';

interface Options {
  json?: boolean;
  yes?: boolean;
}

const descriptions: Record<Transition, string> = {
  suspend: 'serve a tenant no longer; effective everywhere within a second',
  resume: 'serve a suspended tenant again',
  delete: 'take a tenant out of service, keeping its data until it is purged',
  restore: 'bring a deleted tenant back into service',
};

/** The life of a tenant after it was provisioned. */
export function addStateCommands(tenant: Command): void {
  for (const move of Object.keys(descriptions) as Transition[]) {
    const command = tenant.command(move).description(descriptions[move]).argument('<slug>');
    if (move === 'delete') command.option('--yes', 'do not ask');
    command.option('--json', 'one JSON document on stdout').action(
      withInstallation(async (installation, slug: string, { json, yes }: Options) => {
        if (move === 'delete') {
          await requireTransition(installation, slug, move);
          await confirm(slug, 'will not be served any more', yes);
        }
        const { guid, status } = await changeState(installation, slug, move);
        if (json) printJson({ slug, guid, status });
        else process.stdout.write(`${slug} is ${status}.\n`);
      }),
    );
  }
  tenant
    .command('refresh')
    .description('after changes by other means (psql …): every process reads the data of a tenant again, now')
    .argument('<slug>')
    .option('--json', 'one JSON document on stdout')
    .action(
      withInstallation(async (installation, slug: string, { json }: Options) => {
        const { guid } = await findTenant(installation, slug);
        await createAnnouncer(installation.control)('answers', guid);
        if (json) printJson({ slug, guid });
        else process.stdout.write(`Every process reads the data of ${slug} again.\n`);
      }),
    );
  tenant
    .command('clone')
    .description(
      'a copy of a tenant under a new slug, with its own key and login role; sessions and API clients are not copied',
    )
    .argument('<slug>')
    .argument('<new-slug>')
    .option('--json', 'one JSON document on stdout')
    .action(
      withInstallation(async (installation, slug: string, newSlug: string, { json }: Options) => {
        const clone = summarise(
          await during(`cloning ${slug}`, cloneTenant(installation, createPasswords(), slug, newSlug)),
        );
        if (json) printJson(clone);
        else printFields({ ...clone });
      }),
    );
  tenant
    .command('purge')
    .description('remove a deleted tenant for good: database, login role, keys, users, sessions')
    .argument('<slug>')
    .option('--yes', 'do not ask')
    .option('--json', 'one JSON document on stdout')
    .action(
      withInstallation(async (installation, slug: string, { json, yes }: Options) => {
        requirePurgeable(await findTenant(installation, slug));
        await confirm(slug, 'and all of its data will be gone for good', yes);
        await during(`purging ${slug}`, purgeTenant(installation, slug));
        if (json) printJson({ slug, status: 'purged' });
        else process.stdout.write(`${slug} is gone.\n`);
      }),
    );
}

/** Lets a person type the slug again before something is destroyed; a script says `--yes`. */
export async function confirm(slug: string, consequence: string, yes = false): Promise<void> {
  if (yes) return;
  if (!process.stdin.isTTY) throw new OperatorError(`${slug} ${consequence}: say --yes to go on`, { usage: true });
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  const typed = await terminal
    .question(`${slug} ${consequence}.\nType its slug to go on: `)
    .catch(() => '\n') // Ctrl-C or Ctrl-D
    .finally(() => terminal.close());
  if (typed === '\n') process.stderr.write('\n');
  if (typed.trim() !== slug) throw new OperatorError('that is not its slug: nothing was changed', { usage: true });
}
