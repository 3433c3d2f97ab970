import { z } from 'zod';

/** Slugs that would be confused with databases of PostgreSQL or of this service. */
const reserved = new Set(['postgres', 'template0', 'template1', 'template', 'tenant', 'control']);

/** The slug that somebody gives a tenant, in the form that the control database accepts. */
export const slugField = z
  .string()
  .regex(
    /^[a-z][a-z0-9-]{0,30}[a-z0-9]$/,
    'must be 2 to 32 lower-case letters, digits and hyphens, beginning with a letter',
  )
  .refine(slug => !reserved.has(slug), 'is a reserved word');
