/** All permissions. No permission implies another one. */
export const permissions = [
  'orders.read',
  'orders.write',
  'orders.approve',
  'products.read',
  'products.write',
  'pricing.read',
  'pricing.write',
  'pricing.override',
  'users.read',
  'users.write',
  'users.manage',
  'inventory.read',
  'inventory.write',
  'documents.read',
  'documents.download',
  'reports.read',
  'reports.export',
  'settings.read',
  'settings.write',
  'full.read',
  'full.manage',
] as const;
export type Permission = (typeof permissions)[number];

/** The roles of a new tenant. Roles of existing tenants do not follow this list. */
export const initialRoles = [
  { name: 'Administrator', permissions: [...permissions] },
  { name: 'Member', permissions: permissions.filter(permission => permission.endsWith('.read')) },
];
