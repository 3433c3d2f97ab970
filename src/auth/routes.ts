import type { Logger } from 'pino';
import type { Background } from '../background.ts';
import type { ControlDatabase } from '../control/database.ts';
import type { Directory } from '../control/directory.ts';
import type { SecretBox } from '../control/secret-box.ts';
import type { TenantRoute } from '../tenancy/define-route.ts';
import type { TokenSettings } from './access-token.ts';
import { confirm } from './confirm.ts';
import { generateToken } from './generate-token.ts';
import { login } from './login.ts';
import { logout } from './logout.ts';
import type { SendMail } from './mail.ts';
import { me } from './me.ts';
import { sessionRoutes } from './own-sessions.ts';
import type { Passwords } from './passwords.ts';
import { refresh } from './refresh.ts';
import { register } from './register.ts';
import { resetPassword } from './reset-password.ts';
import type { UsageCounter } from './usage-counter.ts';

/** What the account endpoints need beside the request. */
export interface AuthParts {
  control: ControlDatabase;
  directory: Directory;
  log: Logger;
  passwords: Passwords;
  secrets: SecretBox;
  tokens: TokenSettings;
  usage: UsageCounter;
  background: Background;
  sendMail: SendMail;
  /** Address under which clients reach the service, for links in mails. */
  publicUrl: string;
}

export function authRoutes(parts: AuthParts): TenantRoute[] {
  return [
    login(parts),
    refresh(parts),
    me(),
    logout(parts),
    ...sessionRoutes(parts),
    register(parts),
    confirm(parts),
    resetPassword(parts),
    generateToken(parts),
  ];
}
