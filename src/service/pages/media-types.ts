/** `text/csv; charset=utf-8` → `text/csv`. */
export function mediaTypeOf(contentType: string): string {
  return contentType.split(';')[0]?.trim() ?? contentType;
}

/** True for JSON, also for a media type that is built on it, such as a merge patch. */
export function isJson(contentType: string): boolean {
  return /^application\/(.+\+)?json\b/.test(contentType);
}
