import { resources } from '../resources/index.ts';
import type { ResourceDefinition } from '../resources/rest/resource-definition.ts';

/** The resources that files can be imported into, by their names. */
export const importableResources: ReadonlyMap<string, ResourceDefinition> = new Map(
  resources.map(({ name, definition }) => [name, definition]),
);
