/** True for JSON, also in a form of its own, such as a problem. */
export function isJson({ headers }: Pick<Response, 'headers'>): boolean {
  return /^application\/(.+\+)?json\b/i.test(headers.get('Content-Type') ?? '');
}
