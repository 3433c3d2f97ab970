/** True for JSON, also in a form of its own, such as a problem. */
export function isJson({ headers }: Pick<Response, 'headers'>): boolean {
  return /^application\/(.+\+)?json\b/i.test(headers.get('Content-Type') ?? '');
}

/**
 * Gives up a body that nobody reads. Not awaited: one of two clones waits for the other one.
 */
export function drop({ body }: Response): void {
  void body?.cancel().catch(() => {});
}
