export const scopes = ['Self', 'All'] as const;
/**
 * The data that a user can access: those of the user's business entity, or all of the tenant.
 */
export type Scope = (typeof scopes)[number];
