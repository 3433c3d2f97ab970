import { problem } from '../../problems.ts';

/** The suffix that a proxy or `Representation.tagOf` adds to the tag of a compressed body. */
const codingSuffix = /-(zstd|br|gzip)"$/;

const tag = String.raw`(W/)?"[\x21\x23-\x7e\x80-\xff]*"`;
/** RFC 9110 §13.1.1: `*`, or tags with commas between them. */
const tagList = new RegExp(String.raw`^(\*|[\s,]*${tag}(\s*,(\s*${tag})?)*)$`);

/**
 * Returns the tag with which a condition names the current representation, in any coding, or
 * `*`; undefined when the condition does not name it. The comparison is weak (RFC 9110
 * §8.8.3.2), for `If-Match`, too: a tag is the version of a record, and a proxy that compresses
 * responses makes each tag weak. `ctx.fresh` of Koa is no alternative: it ignores
 * `If-None-Match` in a request with `Cache-Control: no-cache`, which `fetch` adds to every
 * conditional request.
 */
export function nameOf(condition: string, tag: string): string | undefined {
  return condition
    .replaceAll('W/"', '"')
    .split(',')
    .map(item => item.trim())
    .find(item => item === tag || item === '*' || item.replace(codingSuffix, '"') === tag);
}

/** The digest of the volatile fields, in the tags of records that have some. */
const volatilePart = /\.[\w-]+"/g;

/**
 * True if a condition names the version of a record, whatever its volatile fields
 * (`Route.volatile`) were then. The condition of a change protects the changes of others, and
 * volatile fields change without one.
 */
export function namesVersion(condition: string, tag: string): boolean {
  const version = tag.replace(volatilePart, '"');

  return nameOf(condition.replace(volatilePart, '"'), version) !== undefined;
}

/**
 * Refuses a condition that is no list of tags. It would never hold, so a client that sends a
 * tag without its quotes would read a record again and again.
 * @param header the name of the header
 * @throws {Problem} `invalid_request`
 */
export function requireTags(header: string, condition: string): void {
  if (tagList.test(condition.trim())) return;

  throw problem('invalid_request', {
    detail:
      `${header} must be an ETag as it was received, with its quotation marks, several with ` +
      'commas between them, or *.',
  });
}
