import { readdir, readFile } from 'node:fs/promises';
import { z } from 'zod';
import { initialRoles } from '../../control/permissions.ts';
import { scopes } from '../../control/scopes.ts';
import { mustBeFeature, tenantFeatures } from '../../control/tenant-features.ts';
import { pageAddress } from '../../lib/config/config-values.ts';
import { email } from '../../lib/http/request/email.ts';
import { fieldErrorOf } from '../../lib/http/request/field-error-of.ts';
import { lengths, text } from '../../lib/http/request/fields.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';
import { slugField } from '../registry/slug-field.ts';
import { packNames } from './pack-names.ts';

const name = text({ max: lengths.name });

const user = z.strictObject({
  email: email(),
  firstName: name.default('New'),
  lastName: name.default('User'),
  role: z.enum(initialRoles.map(role => role.name)).default('Member'),
  scope: z.enum(scopes).default('Self'),
  /** Name of one of the manifest's entities. */
  entity: name.optional(),
});

const description = z.strictObject({
  slug: slugField,
  name,
  appId: text({ max: lengths.code }).optional(),
  /** The pages that links in mails lead to; without it, those of `APP_URL`. */
  appUrl: pageAddress.optional(),
  features: z.array(z.enum(tenantFeatures, mustBeFeature)).default([]),
  /** The server; without it, the one with the most room. */
  server: name.optional(),
  admin: z.strictObject({
    email: email(),
    firstName: name.default('First'),
    lastName: name.default('Administrator'),
  }),
  /** Packs of reference data that the tenant begins with. */
  packs: z.array(z.enum(packNames, `must be one of ${packNames.join(', ')}`)).default([]),
  users: z.array(user).default([]),
  entities: z
    .array(z.strictObject({ name, entityType: z.enum(['supplier', 'customer']) }))
    .default([]),
});

/**
 * The manifest, with errors for a person or an entity that occurs twice, and for an entity that
 * it does not have.
 */
const manifest = description.superRefine(({ admin, users, entities }, { addIssue }) => {
  const refuse = (path: (string | number)[], input: string, message: string) =>
    addIssue({ code: 'custom', path, input, message });
  const names = entities.map(entity => entity.name);
  for (const [index, input] of names.entries()) {
    if (names.indexOf(input) < index) {
      refuse(['entities', index, 'name'], input, 'is the name of two entities');
    }
  }

  const emails = [admin, ...users].map(person => person.email);
  for (const [index, { email, entity }] of users.entries()) {
    if (emails.indexOf(email) <= index) {
      refuse(['users', index, 'email'], email, 'is the address of two people');
    }
    if (entity !== undefined && !names.includes(entity)) {
      refuse(['users', index, 'entity'], entity, 'is not the name of an entity of the manifest');
    }
  }
});

/** The description of a new tenant. It contains no secrets. */
export type Manifest = z.output<typeof manifest>;

/**
 * Validates a manifest.
 * @throws {OperatorError} that names every invalid field
 */
export function checkManifest(value: unknown, source: string): Manifest {
  const parsed = manifest.safeParse(value, { reportInput: true });
  if (parsed.success) return parsed.data;
  const faults = parsed.error.issues.map(
    issue =>
      `${issue.path.join('.') || 'the manifest'}: ${fieldErrorOf(issue, issue.input).message}`,
  );
  throw new OperatorError(`${source}: ${faults.join('; ')}`, { usage: true });
}

/**
 * Returns the names of the manifests of a folder, in order.
 * @throws {OperatorError} when it has none
 */
export async function listManifests(folder: string): Promise<string[]> {
  const files = (await readdir(folder)).filter(file => file.endsWith('.json')).sort();
  if (files.length === 0) {
    throw new OperatorError(`There is no manifest in ${folder}`, { usage: true });
  }
  return files;
}

export async function readManifest(path: string): Promise<Manifest> {
  const content = await readFile(path, 'utf8').catch(cause => {
    throw new OperatorError(`${path} cannot be read`, { usage: true, cause });
  });
  try {
    return checkManifest(JSON.parse(content), path);
  } catch (error) {
    if (error instanceof SyntaxError) {
      throw new OperatorError(`${path} is not valid JSON`, { usage: true });
    }
    throw error;
  }
}
