/**
 * Prefixes that only variables of this service have. Names such as REDIS_HOST or DATABASE_POOL cause no warning,
 * because platforms set them for other programs.
 */
const ownPrefixes = new RegExp(
  '^(ACQUIRE_|CONNECTION_BUDGET|CORS_|KEEP_ALIVE_|MASTER_KEY|MANAGEMENT_|RATE_LIMIT|RESPONSE_CACHE|SHUTDOWN_|' +
    'TRUSTED_PROX)',
);
/** Variables that Kubernetes sets for a service named `management`. */
const ofKubernetes = /_SERVICE_(HOST|PORT)|_PORT(_\d+_(TCP|UDP).*)?$/;
const minLength = 6; // shorter names, such as PORT and HOST, resemble too many variables

/**
 * Returns a sentence for each variable that is not a setting but resembles one: by the same letters in another case or
 * with other separators, by a prefix that only settings have, or by one typing error (two in a name of 10 or more
 * letters).
 */
export function similarSettingWarnings(names: readonly string[], settings: readonly string[]): string[] {
  const known = new Set(settings);
  return names.flatMap(name => {
    if (known.has(name) || name.length < minLength) return [];
    const similar = settings.find(setting => resembles(name, setting));
    if (similar) return [`${name} is not a setting and has no effect: did you mean ${similar}?`];
    if (!ownPrefixes.test(name) || ofKubernetes.test(name)) return [];
    return [`${name} is not a setting and has no effect: docs/operators.md lists the settings.`];
  });
}

function resembles(name: string, setting: string): boolean {
  if (setting.length < minLength) return false;
  const plain = (text: string): string => text.toUpperCase().replace(/[-_.]/g, '');
  return plain(name) === plain(setting) || typingErrors(name, setting) <= (setting.length < 10 ? 1 : 2);
}

/** The Damerau-Levenshtein distance: letters added, missing, replaced, or swapped with the next one. */
function typingErrors(a: string, b: string): number {
  const rows: number[][] = Array.from({ length: a.length + 1 }, (_, i) => [i]);
  const at = (i: number, j: number): number => rows[i]?.[j] ?? Number.POSITIVE_INFINITY;
  for (let i = 0; i <= a.length; i++) {
    for (let j = i === 0 ? 0 : 1; j <= b.length; j++) {
      const isSwap = a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      rows[i]![j] =
        i === 0
          ? j
          : Math.min(
              at(i - 1, j) + 1,
              at(i, j - 1) + 1,
              at(i - 1, j - 1) + (a[i - 1] === b[j - 1] ? 0 : 1),
              i > 1 && j > 1 && isSwap ? at(i - 2, j - 2) + 1 : Number.POSITIVE_INFINITY,
            );
    }
  }
  return at(a.length, b.length);
}
