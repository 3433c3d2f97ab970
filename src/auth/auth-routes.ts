import type { TenantRoute } from '../tenancy/define-route.ts';
import type { AuthServices } from './auth-services.ts';
import { confirm } from './confirm.ts';
import { generateToken } from './generate-token.ts';
import { login } from './login.ts';
import { logout } from './logout.ts';
import { me } from './me.ts';
import { sessionRoutes } from './own-sessions.ts';
import { refresh } from './refresh.ts';
import { register } from './register.ts';
import { resetPassword } from './reset-password.ts';

/** All routes of the authentication: login, tokens, sessions and accounts. */
export function authRoutes(services: AuthServices): TenantRoute[] {
  return [
    login(services),
    refresh(services),
    me(),
    logout(services),
    ...sessionRoutes(services),
    register(services),
    confirm(services),
    resetPassword(services),
    generateToken(services),
  ];
}
