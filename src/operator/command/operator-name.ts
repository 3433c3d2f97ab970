import { hostname, userInfo } from 'node:os';
import { environment } from '../../lib/config/process-environment.ts';

/**
 * Returns login and host of the operator, behind the name in OPERATOR_NAME, if several people
 * share the login.
 */
export function operatorName(): string {
  const name = environment().OPERATOR_NAME;
  return name ? `${name} (${loginName()})` : loginName();
}

function loginName(): string {
  try {
    return `${userInfo().username}@${hostname()}`;
  } catch {
    // the uid has no login name, as in some containers
    return `${process.getuid?.() ?? 'unknown'}@${hostname()}`;
  }
}
