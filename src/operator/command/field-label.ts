/** Returns how people call a field: `firstName` → `First name`. @param name in camel or kebab case */
export function fieldLabel(name: string): string {
  const words = name.replace(/-/g, ' ').replace(/[A-Z]/g, letter => ` ${letter.toLowerCase()}`);
  return labels[name] ?? words.charAt(0).toUpperCase() + words.slice(1);
}

const labels: Readonly<Record<string, string>> = {
  slug: 'Tenant',
  email: 'E-mail address',
  adminEmail: 'E-mail address of the administrator',
  kid: 'Key',
  url: 'URL',
  appId: 'Application identifier',
};
