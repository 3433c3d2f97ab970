import { countErrors } from '../../config/count-errors.ts';

/** A longer segment resembles no path of the API, and would take long to compare. */
const maxSegment = 40;
/** Segments of the path of a list: `/api/v1/Currency`. */
const listSegments = 3;

/**
 * Returns the path of an endpoint that a path resembles: by singular and plural, letter case,
 * hyphens, one or two typing errors, or without `/api/v1`. Undefined when none does.
 * @param patterns the paths of the endpoints, with parameters such as `:id`
 */
export function similarPath(path: string, patterns: readonly string[]): string | undefined {
  const rest = path.split('/').filter(each => each !== '' && !/^(api|v\d+)$/i.test(each));
  const segments = ['api', 'v1', ...rest];
  if (rest.length === 0 || segments.some(each => each.length > maxSegment)) return undefined;

  return closest(segments, patterns) ?? closest(segments.slice(0, listSegments), patterns);
}

function closest(segments: readonly string[], patterns: readonly string[]): string | undefined {
  const similar = patterns
    .map(pattern => pattern.split('/').slice(1))
    .filter(
      names =>
        names.length === segments.length &&
        names.every((name, at) => resembles(segments[at] ?? '', name)),
    )
    .map(names => ({
      names,
      errors: names.reduce((sum, name, at) => sum + errorsOf(segments[at] ?? '', name), 0),
    }))
    .sort((one, other) => one.errors - other.errors);
  const [best] = similar;

  return (
    best && `/${best.names.map((name, at) => (isParameter(name) ? segments[at] : name)).join('/')}`
  );
}

const isParameter = (name: string): boolean => name.startsWith(':');

function resembles(segment: string, name: string): boolean {
  const maxErrors = name.length < 5 ? 0 : name.length < 10 ? 1 : 2;
  return errorsOf(segment, name) <= maxErrors;
}

function errorsOf(segment: string, name: string): number {
  return isParameter(name) ? 0 : countErrors(plain(segment), plain(name));
}

/** Returns a segment without letter case, separators and the ending of a plural. */
function plain(segment: string): string {
  return segment
    .toLowerCase()
    .replace(/[-_]/g, '')
    .replace(/ies$/, 'y')
    .replace(/(ss|us|x)es$/, '$1')
    .replace(/([^su])s$/, '$1');
}
