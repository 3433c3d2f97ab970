import type { Logger } from 'pino';
import type { ControlDatabase } from '../control/database.ts';
import type { Directory } from '../control/directory.ts';
import type { SecretBox } from '../control/secret-box.ts';
import type { TenantRoute } from '../tenancy/define-route.ts';
import type { TokenSettings } from './access-token.ts';
import { login } from './login.ts';
import { logout } from './logout.ts';
import { me } from './me.ts';
import type { Passwords } from './passwords.ts';
import { refresh } from './refresh.ts';

/** What the account endpoints need beside the request. */
export interface AuthParts {
  control: ControlDatabase;
  directory: Directory;
  log: Logger;
  passwords: Passwords;
  secrets: SecretBox;
  tokens: TokenSettings;
}

export function authRoutes(parts: AuthParts): TenantRoute[] {
  return [login(parts), refresh(parts), me(), logout(parts)];
}
