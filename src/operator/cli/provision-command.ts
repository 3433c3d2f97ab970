import { stat } from 'node:fs/promises';
import type { Command } from 'commander';
import type { Installation } from '../../installation.ts';
import { explain, OperatorError } from '../../operator-error.ts';
import { countText } from '../count-text.ts';
import type { Manifest } from '../provisioning/manifest.ts';
import type { Provisioned } from '../provisioning/provision.ts';
import { summarise } from '../tenants/read-tenants.ts';
import { withInstallation } from './command.ts';
import { type OutputOptions, printPart, printResult, printText } from './output.ts';
import { packsOption } from './packs-commands.ts';
import { withSpinner } from './spinner.ts';
import { fieldsText } from './text-table.ts';

interface ProvisionOptions extends OutputOptions {
  file?: string;
  name?: string;
  appId?: string;
  feature: string[];
  server?: string;
  adminEmail?: string;
  packs?: string[];
}

/** Adds `provision`: creates one tenant from arguments or a manifest, or many tenants from a folder of manifests. */
export function addProvisionCommand(program: Command): void {
  program
    .command('provision')
    .description('make a tenant: its database, roles, signing key and first administrator')
    .argument('[slug]', 'short name, in lower case')
    .option('--file <manifest>', 'read everything from a manifest, such as tenants/demo.json, or from a folder of them')
    .option('--name <name>', 'name of the company')
    .option('--app-id <id>', 'application identifier (default: the slug)')
    .option('--feature <feature>', 'a feature to enable; may be repeated', collect, [])
    .option('--server <server>', 'PostgreSQL server to place it on (default: the one with the most room)')
    .option(
      '--admin-email <address>',
      'e-mail address of the first administrator; the password is generated and shown only once',
    )
    .option(
      packsOption[0],
      'packs of reference data to begin with, separated by commas; list them: packs list',
      packsOption[2],
    )
    .option('--json', 'print one JSON document on stdout; for a folder, one line for each manifest')
    .action(
      withInstallation(async (installation, slug: string | undefined, options: ProvisionOptions) => {
        if (options.file && options.packs)
          throw new OperatorError('Write the packs into the manifest: "packs": ["countries"]', { usage: true });
        if (options.file && (await isFolder(options.file))) {
          return provisionManifests(installation, options.file, options);
        }
        const { createPasswords } = await import('../../auth/passwords.ts');
        const { readManifest } = await import('../provisioning/manifest.ts');
        const { provision } = await import('../provisioning/provision.ts');
        const manifest = options.file ? await readManifest(options.file) : await manifestOf(slug, options);
        const work = provision(installation, createPasswords(), manifest);
        const provisioned = await withSpinner(`provisioning ${manifest.slug}`, work);
        if (!provisioned.created && !options.file) {
          const { slug: taken, status } = provisioned.tenant;
          throw new OperatorError(
            `The tenant ${taken} exists already and is ${status}. Show it: npx backoffice show ${taken}`,
          );
        }
        printResult(options, documentOf(provisioned), () => textOf(provisioned));
        return true;
      }),
    );
}

/** Provisions every manifest of a folder. @returns false when one of them failed */
async function provisionManifests(
  installation: Installation,
  folder: string,
  options: OutputOptions,
): Promise<boolean> {
  const { createPasswords } = await import('../../auth/passwords.ts');
  const { provisionFolder } = await import('../provisioning/provision-folder.ts');
  let failures = 0;
  let total = 0;
  await provisionFolder(installation, createPasswords(), folder, ({ file, provisioned, error }) => {
    total++;
    if (provisioned) {
      printPart(options, { file, ...documentOf(provisioned) }, () => textOf(provisioned));
    } else {
      failures++;
      const reason = explain(error);
      printPart(options, { file, error: reason }, () => `${file}: ${reason}`);
    }
  });
  printText(options, () => `\n${countText(total, 'manifest')}, ${failures} failed.`);
  return failures === 0;
}

function documentOf({ tenant, created, logins: [admin, ...users] }: Provisioned) {
  return { ...summarise(tenant), created, ...(admin ? { admin } : {}), ...(users.length ? { users } : {}) };
}

function textOf({ tenant, created, logins }: Provisioned): string {
  if (!created) return `${tenant.slug} exists already: nothing was changed.`;
  return [
    `Provisioned ${tenant.slug}. Passwords are shown only this once.\n`,
    fieldsText(summarise(tenant)),
    ...logins.map(({ email, password }) => fieldsText({ email, password })),
  ].join('\n');
}

async function manifestOf(slug: string | undefined, options: ProvisionOptions): Promise<Manifest> {
  const { name, appId, feature, server, adminEmail, packs } = options;
  if (!slug || !name || !adminEmail) {
    throw new OperatorError('Give a slug, --name and --admin-email, or give --file', { usage: true });
  }
  const { checkManifest } = await import('../provisioning/manifest.ts');
  const admin = { email: adminEmail };
  return checkManifest({ slug, name, appId, features: feature, server, admin, packs }, 'the arguments');
}

async function isFolder(path: string): Promise<boolean> {
  return stat(path).then(
    found => found.isDirectory(),
    () => false, // reading the file reports the error
  );
}

function collect(value: string, previous: string[]): string[] {
  return [...previous, value];
}
