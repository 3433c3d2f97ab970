import { Entity } from './entity.ts';
import { entityStatuses } from './entity-status.ts';

/** The catalogue: every reference resource. */
export const resources = [entityStatuses];

/** Everything stored in a tenant database. */
export const tenantEntities = [Entity, ...resources.map(resource => resource.entity)];
