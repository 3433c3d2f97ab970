import { countErrors } from './count-errors.ts';

/**
 * Prefixes that only variables of this service have. Names such as REDIS_HOST or DATABASE_POOL
 * cause no warning, because platforms set them for other programs.
 */
const ownPrefixes = new RegExp(
  '^(ACQUIRE_|BACKUP_|CONNECTION_BUDGET|CORS_|KEEP_ALIVE_|MASTER_KEY|MANAGEMENT_|RATE_LIMIT|RESPONSE_CACHE|SHUTDOWN_|' +
    'TRUSTED_(PROX|HOP|HEADER))',
);
/** Variables that Kubernetes sets for a service named `management`. */
const ofKubernetes = /_SERVICE_(HOST|PORT)|_PORT(_\d+_(TCP|UDP).*)?$/;
const minLength = 6; // shorter names, such as PORT and HOST, resemble too many variables

/**
 * Returns a sentence for each variable that is not a setting but resembles one: by the same
 * letters in another case or with other separators, by a prefix that only settings have, or by
 * one typing error (two in a name of 10 or more letters).
 */
export function similarSettingWarnings(
  names: readonly string[],
  settings: readonly string[],
): string[] {
  const known = new Set(settings);
  const candidates = settings
    .filter(setting => setting.length >= minLength)
    .map(setting => ({ setting, plain: plainName(setting) }));

  return names.flatMap(name => {
    if (known.has(name) || name.length < minLength) return [];

    const plain = plainName(name);
    const similar = candidates.find(
      candidate => candidate.plain === plain || resembles(name, candidate.setting),
    );
    if (similar) {
      return [`${name} is not a setting and has no effect: did you mean ${similar.setting}?`];
    }
    if (!ownPrefixes.test(name) || ofKubernetes.test(name)) return [];

    return [
      `${name} is not a setting and has no effect: docs/operate/reference.md lists the settings.`,
    ];
  });
}

function plainName(name: string): string {
  return name.toUpperCase().replace(/[-_.]/g, '');
}

function resembles(name: string, setting: string): boolean {
  const maxErrors = setting.length < 10 ? 1 : 2;
  // A difference in length is at least as many errors. Most pairs differ by more, and are not
  // compared further: a start compares thousands of pairs.
  return (
    Math.abs(name.length - setting.length) <= maxErrors && countErrors(name, setting) <= maxErrors
  );
}
