import type { TenantRoute } from '../../tenancy/define-route.ts';
import type { AuthServices } from './auth-services.ts';
import { changePassword } from './change-password.ts';
import { factorRoutes } from './factors/factor-routes.ts';
import { loginRoutes } from './factors/login-routes.ts';
import { generateToken } from './generate-token.ts';
import { exchangeRoutes } from './identities/exchange.ts';
import { identityRoutes } from './identities/identity-routes.ts';
import { login, refresh } from './login.ts';
import { loginListRoutes } from './login-list.ts';
import { me } from './me.ts';
import { logout, sessionRoutes } from './own-sessions.ts';
import { confirm, register } from './register.ts';
import { resetPassword } from './reset-password.ts';
import { verify } from './verify.ts';

/** The routes of authentication: login, tokens, sessions and accounts. */
export function authRoutes(services: AuthServices): TenantRoute[] {
  return [
    login(services),
    refresh(services),
    me(),
    logout(services),
    verify(services),
    changePassword(services),
    ...sessionRoutes(services),
    ...loginListRoutes(services),
    register(services),
    confirm(services),
    resetPassword(services),
    generateToken(services),
    ...loginRoutes(services),
    ...factorRoutes(services),
    ...exchangeRoutes(services),
    ...identityRoutes(services),
  ];
}
