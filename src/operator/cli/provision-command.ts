import { stat } from 'node:fs/promises';
import type { Command } from 'commander';
import { createPasswords } from '../../auth/passwords.ts';
import type { Installation } from '../../installation.ts';
import { explain, OperatorError } from '../../operator-error.ts';
import { checkManifest, type Manifest, readManifest } from '../provisioning/manifest.ts';
import { type Provisioned, provision } from '../provisioning/provision.ts';
import { provisionFolder } from '../provisioning/provision-folder.ts';
import { summarise } from '../tenants/tenants.ts';
import { printFields, printJson, withInstallation } from './command.ts';
import { during } from './spinner.ts';

interface Options {
  file?: string;
  name?: string;
  appId?: string;
  feature: string[];
  server?: string;
  adminEmail?: string;
  json?: boolean;
}

export function addProvisionCommand(tenant: Command): void {
  tenant
    .command('provision')
    .description('make a tenant: its database, roles, signing key and first administrator')
    .argument('[slug]', 'short name, in lower case')
    .option(
      '--file <manifest>',
      'take everything from a manifest, such as tenants/demo.json, or from all manifests of a folder',
    )
    .option('--name <name>', 'name of the company')
    .option('--app-id <id>', 'application identifier (the slug)')
    .option('--feature <feature>', 'a feature to enable; may be repeated', collect, [])
    .option('--server <server>', 'PostgreSQL server to place it on (the one with the most room)')
    .option('--admin-email <address>', 'the first administrator, whose password is generated and shown once')
    .option('--json', 'one JSON document on stdout; of a folder, one line for each manifest')
    .action(
      withInstallation(async (installation, slug: string | undefined, options: Options) => {
        if (options.file && (await isFolder(options.file))) return folder(installation, options.file, options.json);
        const manifest = options.file ? await readManifest(options.file) : manifestOf(slug, options);
        const provisioned = await during(
          `provisioning ${manifest.slug}`,
          provision(installation, createPasswords(), manifest),
        );
        if (!provisioned.created && !options.file) {
          const { slug: taken, status } = provisioned.tenant;
          throw new OperatorError(
            `there is a tenant ${taken} already, ${status}; see: npm run -s tenant -- show ${taken}`,
          );
        }
        if (options.json) printJson(documentOf(provisioned));
        else print(provisioned);
      }),
    );
}

/** @returns false when one of them failed */
async function folder(installation: Installation, path: string, json = false): Promise<boolean> {
  let failures = 0;
  let total = 0;
  await provisionFolder(installation, createPasswords(), path, ({ file, provisioned, error }) => {
    total++;
    if (!provisioned) failures++;
    const text = provisioned ? undefined : explain(error);
    if (json)
      process.stdout.write(
        `${JSON.stringify(provisioned ? { file, ...documentOf(provisioned) } : { file, error: text })}\n`,
      );
    else if (provisioned) print(provisioned);
    else process.stdout.write(`${file}: ${text}\n`);
  });
  if (!json) process.stdout.write(`\n${total} manifests, ${failures} failed.\n`);
  return failures === 0;
}

function documentOf({ tenant, created, logins: [admin, ...users] }: Provisioned) {
  return { ...summarise(tenant), created, ...(admin ? { admin } : {}), ...(users.length ? { users } : {}) };
}

function print({ tenant, created, logins }: Provisioned): void {
  if (!created) {
    process.stdout.write(`${tenant.slug} is there already: nothing was changed.\n`);
    return;
  }
  process.stdout.write(`Provisioned ${tenant.slug}. Passwords are shown this once.\n\n`);
  printFields(summarise(tenant) as never);
  for (const { email, password } of logins) printFields({ email, password });
}

function manifestOf(slug: string | undefined, { name, appId, feature, server, adminEmail }: Options): Manifest {
  if (!slug || !name || !adminEmail) {
    throw new OperatorError('a slug, --name and --admin-email are needed, or --file', { usage: true });
  }
  return checkManifest({ slug, name, appId, features: feature, server, admin: { email: adminEmail } }, 'the arguments');
}

async function isFolder(path: string): Promise<boolean> {
  return stat(path).then(
    found => found.isDirectory(),
    () => false, // who reads it says so
  );
}

function collect(value: string, previous: string[]): string[] {
  return [...previous, value];
}
