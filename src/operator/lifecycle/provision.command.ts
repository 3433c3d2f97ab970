import { stat } from 'node:fs/promises';
import type { Installation } from '../../control/installation.ts';
import { explain, OperatorError } from '../../lib/log/operator-error.ts';
import { defineOperation, type Output, type RecordBirth } from '../command/operation.ts';
import {
  flag,
  option,
  optionalArgument,
  optionList,
  optionNames,
  type Values,
} from '../command/operation-fields.ts';
import { fieldsText, tableText } from '../command/text-table.ts';
import { countText } from '../command/texts.ts';
import {
  existingSteps,
  readTenant,
  type TenantSummary,
  tenantExists,
} from '../registry/read-tenants.ts';
import type { Manifest } from './manifest.ts';
import { packNames } from './pack-names.ts';
import type { Provisioned } from './provision.ts';

const fields = {
  slug: optionalArgument('text', {
    label: 'Slug',
    description: 'short name, in lower case',
    neededUnless: 'file',
    unless: ['file'],
  }),
  file: option(
    '<manifest>',
    'read everything from a manifest, such as tenants/demo.json, or from a folder of them',
    {
      kind: 'file',
      label: 'Manifest on this host',
      isAdvanced: true,
    },
  ),
  name: option('<name>', 'name of the company', {
    kind: 'text',
    neededUnless: 'file',
    unless: ['file'],
  }),
  appId: option('<id>', 'application identifier', {
    kind: 'text',
    otherwise: 'the slug',
    isAdvanced: true,
  }),
  feature: optionList('<feature>', 'a feature to enable: legacyTokens or selfRegistration', {
    label: 'Features',
    kind: 'feature',
    isAdvanced: true,
  }),
  server: option('<server>', 'PostgreSQL server to place it on', {
    kind: 'server',
    otherwise: 'the one with the most room',
    isAdvanced: true,
  }),
  adminEmail: option(
    '<address>',
    'e-mail address of the first administrator; the password is generated and shown only once',
    { kind: 'text', neededUnless: 'file', unless: ['file'] },
  ),
  reuseSlug: flag(
    'take the slug of a former tenant, whose programs may still send their logins to it',
    {
      label: 'Take a reserved slug',
      isAdvanced: true,
    },
  ),
  packs: optionNames('packs of reference data to begin with', packNames, { unless: ['file'] }),
};

const provisionTenant = defineOperation({
  name: 'provision',
  help: {
    description: 'make a tenant: its database, roles, signing key and first administrator',
    examples: [
      'provision acme --name "Acme Ltd" --admin-email admin@acme.test --packs countries,currencies',
      'provision --file tenants/demo.json',
    ],
    json: 'print one JSON document on stdout; for a folder, one line for each manifest',
  },
  fields,
  effect: 'changes',
  handling: { beginsData: true, confirms: ({ reuseSlug }) => reuseSlug },
  async plan(values, { installation }) {
    const { planFolder, planProvision } = await import('./plan-provision.ts');
    const { readManifest } = await import('./manifest.ts');
    const { file, reuseSlug: reusesSlug } = values;
    requireManifestAlone(values);

    const plansFolder = file && (await isFolder(file));
    if (plansFolder && reusesSlug) throw reusedByFolder();

    const planned = plansFolder
      ? await planFolder(installation, file)
      : [
          await planProvision(
            installation,
            file ? await readManifest(file) : await manifestOf(values),
            { reusesSlug },
          ),
        ];

    const [{ slug = '' } = {}] = planned;
    const former = reusesSlug ? await findReservedBy(installation, slug) : undefined;

    return {
      document: planned,
      text: () => tableText(planned, ''),
      isLines: true,
      hasFailed: planned.some(({ error }) => error !== null),
      confirm:
        former === undefined
          ? undefined
          : {
              name: slug,
              consequence:
                `was the slug of ${former}. The new tenant gets it: programs of the former one that still use it send ` +
                'the new one their logins',
            },
    };
  },
  async run(values, { installation, output, progress, recordBirth }) {
    const { file, reuseSlug: reusesSlug } = values;
    requireManifestAlone(values);
    if (file && (await isFolder(file))) {
      if (reusesSlug) throw reusedByFolder();
      return provisionManifests(installation, file, output, recordBirth);
    }

    const { createPasswords } = await import('../../accounts/auth/passwords.ts');
    const { readManifest } = await import('./manifest.ts');
    const { provision } = await import('./provision.ts');
    const manifest = file ? await readManifest(file) : await manifestOf(values);

    progress.step(`provisioning ${manifest.slug}`);
    const provisioned = await provision(installation, createPasswords(), manifest, {
      reusesSlug,
    });
    if (!provisioned.created && !file) throw tenantExists(provisioned.tenant);
    if (provisioned.created) await recordBirth(manifest.slug, { isOnly: true });

    const summary = await readTenant(installation, manifest.slug);
    output.result(documentOf(provisioned, summary), () => textOf(provisioned, summary));
    return true;
  },
});

export const operations = [provisionTenant];

/**
 * Provisions every manifest of a folder. The text of those that failed is the last one.
 * @returns false when one failed
 */
async function provisionManifests(
  installation: Installation,
  folder: string,
  output: Output,
  recordBirth: RecordBirth,
): Promise<boolean> {
  const { createPasswords } = await import('../../accounts/auth/passwords.ts');
  const { provisionFolder } = await import('./provision-folder.ts');

  const failures: string[] = [];
  let [total, logins] = [0, 0];

  await provisionFolder(
    installation,
    createPasswords(),
    folder,
    recordBirth,
    ({ file, made, error }) => {
      total++;

      if (made) {
        logins += made.provisioned.logins.length;
        const document = documentOf(made.provisioned, made.summary);
        return output.part({ file, ...document }, () => lineOf(made.provisioned));
      }

      const reason = explain(error);
      failures.push(`${file}: ${reason}`);
      if (output.wantsDocuments) output.part({ file, error: reason }, () => '');
    },
  );

  const counts = `${countText(total, 'manifest')}, ${failures.length} failed.`;
  const note = logins > 0 ? ' Passwords are shown only this once.' : '';
  output.text(() => ['', ...failures, counts + note].join('\n'));
  return failures.length === 0;
}

/**
 * Returns a line for a tenant, and one for each of its logins: a folder may have hundreds of
 * manifests.
 */
function lineOf({ tenant, created, logins }: Provisioned): string {
  if (!created) return unchangedText(tenant);
  const lines = logins.map(({ email, password }) => `  ${email}  ${password}`);
  return [`${tenant.slug} is provisioned on ${tenant.server.name}.`, ...lines].join('\n');
}

function documentOf({ created, logins: [admin, ...users] }: Provisioned, summary: TenantSummary) {
  return { ...summary, created, ...(admin ? { admin } : {}), ...(users.length ? { users } : {}) };
}

function textOf({ tenant, created, logins }: Provisioned, summary: TenantSummary): string {
  if (!created) return `${unchangedText(tenant)} ${existingSteps(tenant.slug)}`;
  return [
    `Provisioned ${tenant.slug}. Passwords are shown only this once.\n`,
    fieldsText(summary),
    ...logins.map(({ email, password }) => fieldsText({ email, password })),
  ].join('\n');
}

function unchangedText({ slug }: Provisioned['tenant']): string {
  return `${slug} exists already: nothing was changed.`;
}

/**
 * @throws {OperatorError} when other values are given beside a manifest, which describes
 *   everything that a tenant begins with
 */
function requireManifestAlone({
  file,
  feature,
  reuseSlug: _,
  ...others
}: Values<typeof fields>): void {
  if (file && (feature.length > 0 || Object.values(others).some(value => value !== undefined))) {
    throw new OperatorError('Write everything into the manifest, or leave out --file', {
      usage: true,
    });
  }
}

async function manifestOf(values: Values<typeof fields>): Promise<Manifest> {
  const { slug, name, appId, feature, server, adminEmail, packs } = values;
  if (!slug || !name || !adminEmail) {
    throw new OperatorError('Give a slug, --name and --admin-email, or give --file', {
      usage: true,
    });
  }

  const { checkManifest } = await import('./manifest.ts');
  const { checkPackNames } = await import('./read-pack.ts');
  checkPackNames(packs ?? []);
  const admin = { email: adminEmail };

  return checkManifest(
    { slug, name, appId, features: feature, server, admin, packs },
    'the arguments',
  );
}

function reusedByFolder(): OperatorError {
  return new OperatorError('Name one tenant, or its manifest, with --reuse-slug', { usage: true });
}

/** Returns the former tenant of a slug that is reserved, in words. */
async function findReservedBy(
  installation: Installation,
  slug: string,
): Promise<string | undefined> {
  const { findSlugHolder, holderText } = await import('../registry/tenant-slugs.ts');
  const holder = await findSlugHolder(installation, slug);

  return holder?.state === 'reserved' ? holderText(holder) : undefined;
}

async function isFolder(path: string): Promise<boolean> {
  return stat(path).then(
    found => found.isDirectory(),
    () => false, // reading the file reports the error
  );
}
