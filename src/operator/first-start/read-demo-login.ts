import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Passwords } from '../../accounts/auth/passwords.ts';
import { User } from '../../control/control-entities.ts';
import type { DemoLogin } from '../../control/demo-login.ts';
import type { Installation } from '../../control/installation.ts';
import type { Provisioned } from '../lifecycle/provision.ts';

/**
 * Returns the login of the demo user. The first start stores the password as `demo-password` in
 * the data folder, where only its owner can read it; later starts read it there, and check that
 * the user still has it.
 */
export async function readDemoLogin(
  { control }: Installation,
  passwords: Passwords,
  { tenant, logins }: Provisioned,
  email: string,
  folder: string,
): Promise<DemoLogin> {
  const path = join(folder, 'demo-password');
  const [created] = logins;
  if (created) await writeFile(path, `${created.password}\n`, { mode: 0o600 });
  const stored = created?.password ?? (await readFile(path, 'utf8').catch(() => '')).trim();
  const { em } = await control();
  const user = await em.fork().findOne(User, { tenant: tenant.id, email });
  const isValid =
    stored !== '' && user !== null && (await passwords.verify(user.passwordHash, stored));

  return {
    tenant: { guid: tenant.guid, slug: tenant.slug },
    email,
    password: isValid ? stored : undefined,
  };
}
