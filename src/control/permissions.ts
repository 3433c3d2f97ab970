/** Every permission there is. One is never implied by another. */
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

/** The roles a new tenant begins with. */
export const initialRoles = [
  { name: 'Administrator', permissions: [...permissions] },
  { name: 'Member', permissions: permissions.filter(permission => permission.endsWith('.read')) },
];
