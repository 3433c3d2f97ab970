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

/** Every account endpoint. */
export function authRoutes(parts: AuthServices): TenantRoute[] {
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
