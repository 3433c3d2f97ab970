import { z } from 'zod';
import { invalid } from '../../lib/runtime/field-error.ts';

/** A resource, as requests name it. */
interface NamedResource {
  readonly name: string;
  /** Undefined for a resource without a path of its own. */
  readonly path?: string;
}

/**
 * The parameter `resource`: one of these resources, by its name or by that of its path, such as
 * `Country` or `Countries`.
 */
export function oneResource(resources: readonly NamedResource[]) {
  const known = namesOf(resources);
  const names = resources.map(({ name }) => name);

  return z
    .string()
    .refine(
      text => known.has(text),
      invalid(`must be one of ${names.join(', ')}`, 'not_allowed', { values: names }),
    )
    .transform(text => known.get(text) ?? text)
    .meta({ enum: [...known.keys()] });
}

/** The parameter `resource`: as `oneResource`, and several of them with commas between them. */
export function resourceList(resources: readonly NamedResource[]) {
  const known = namesOf(resources);
  const names = resources.map(({ name }) => name);

  return z
    .string()
    .transform(text => text.split(','))
    .refine(
      texts => texts.every(text => known.has(text)),
      invalid(`must be names, separated by commas, of ${names.join(', ')}`, 'not_allowed', {
        values: names,
      }),
    )
    .transform(texts => [...new Set(texts.map(text => known.get(text) ?? text))]);
}

/** Returns the name of each resource, by its name and by that of its path. */
function namesOf(resources: readonly NamedResource[]): ReadonlyMap<string, string> {
  return new Map(
    resources.flatMap(({ name, path }) => [
      [name, name] as const,
      [path?.split('/').at(-1) ?? name, name] as const,
    ]),
  );
}
