import { hostname, userInfo } from 'node:os';

/** Returns login and host of the operator. */
export function operatorName(): string {
  try {
    return `${userInfo().username}@${hostname()}`;
  } catch {
    return `${process.getuid?.() ?? 'unknown'}@${hostname()}`; // the uid has no login name, as in some containers
  }
}
