import { type Field, storedKindOf } from '../command/operation-fields.ts';
import { type Candidate, readStoredValues, type StoredValue } from '../command/stored-values.ts';
import { sizeText } from '../command/texts.ts';
import type { FilledForm } from './command-line.ts';
import type { PageRequest } from './console-page.ts';
import { utc } from './format.ts';
import { listInTarget } from './list-in-target.ts';

/** The kinds of values that belong to a tenant: they are known when the tenant is. */
const ofTenants: readonly (StoredValue | 'archive')[] = [
  'email',
  'role',
  'database',
  'kid',
  'program',
  'programKey',
  'provider',
  'client',
  'session',
  'archive',
];

/** True for a field whose values are those of a tenant. */
export function dependsOnTenant({ kind }: Field): boolean {
  return ofTenants.some(each => each === kind);
}

/** Returns the known values that a field can have. */
export async function candidatesOf(
  field: Field,
  { texts }: FilledForm,
  control: PageRequest['control'],
): Promise<readonly Candidate[]> {
  const slug = texts.slug?.[0];
  const kind = storedKindOf(field);
  if (kind !== undefined) return readStoredValues(control.statements, kind, '', slug);

  return field.kind === 'archive' && slug !== undefined ? archivesOf(control, slug) : [];
}

/** Returns the archives of a tenant, as far as the target lists them. */
async function archivesOf(
  control: PageRequest['control'],
  slug: string,
): Promise<readonly Candidate[]> {
  const { rows } = await control.statements.query<{ guid: string | null }>(
    'select tenant_named($1) as guid',
    [slug],
  );
  const [tenant] = rows;
  const { archives } = tenant?.guid ? await listInTarget(control, tenant.guid) : { archives: [] };
  if (archives.length === 0) return [];

  return [
    { value: 'latest', description: 'the newest one' },
    ...archives.map(({ name, time, size, provedAt, fault }) => ({
      value: name,
      label: `${utc(time)}, ${sizeText(size)}${fault ? ', faulty' : provedAt ? ', proved' : ''}`,
    })),
  ];
}
