/**
 * Names every invalid variable, and the rule that it breaks, but never its value, which may be
 * a secret.
 */
export class ConfigError extends Error {
  override name = 'ConfigError';
}
