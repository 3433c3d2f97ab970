export const scopes = ['Self', 'All'] as const;
/**
 * Which data a user can access: that of their own business entity, or all data of the tenant.
 */
export type Scope = (typeof scopes)[number];
