/** What `Representation.tagOf` adds to the tag of a compressed body. */
const codingSuffix = /-(zstd|br|gzip)"$/;

/**
 * Returns the tag by which `If-None-Match` names the current representation, in any coding (weak comparison, RFC 9110
 * §13.1.2), or `*`; undefined when it does not. `ctx.fresh` of Koa is no alternative: it ignores `If-None-Match` in a
 * request with `Cache-Control: no-cache`, which `fetch` adds to every conditional request.
 */
export function nameOf(condition: string, tag: string): string | undefined {
  return itemsOf(condition.replaceAll('W/"', '"')).find(item => isName(item, tag));
}

/**
 * Whether `If-Match` names the current representation (strong comparison, RFC 9110 §13.1.1). The compressed bodies of a
 * representation stand for the same record.
 */
export function namesStrongly(condition: string, tag: string): boolean {
  return itemsOf(condition).some(item => isName(item, tag));
}

function itemsOf(condition: string): string[] {
  return condition.split(',').map(item => item.trim());
}

function isName(item: string, tag: string): boolean {
  return item === tag || item === '*' || item.replace(codingSuffix, '"') === tag;
}
