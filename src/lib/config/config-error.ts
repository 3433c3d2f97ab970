/**
 * Names every invalid variable and what it must be, but never its value, which may be a secret.
 */
export class ConfigError extends Error {
  override name = 'ConfigError';
}
