import { createHash, hash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { problem } from '../../problems.ts';
import { type ContentCoding, compress } from './content-coding.ts';
import { namesVersion, requireTags } from './entity-tags.ts';

const maxTextLength = 4_096;
/**
 * A list is encoded in parts of about this number of characters; each part takes at most half a
 * millisecond.
 */
const partLength = 32 * 1024;

/** A shorter body is not compressed: it fits into one packet anyway. */
const minCodedLength = 1_024;

/** A compressed body. */
interface CodedBody {
  readonly bytes: Buffer;
  /** The strong `ETag` of these bytes. */
  readonly tag: string;
}

/** The representation of a response (RFC 9110 §3.2): encoded once, sent any number of times. */
export class Representation {
  /**
   * JSON, as UTF-8 bytes in memory of their own. Up to 4,096 characters it is a string, which
   * Node sends in one write with the head of the response; bytes would take a second write.
   */
  readonly body: Buffer | string;
  /**
   * Called with the bytes of memory that a coded body takes; undefined while the representation
   * is sent only once.
   */
  onGrowth: ((bytes: number) => void) | undefined;
  readonly #coded = new Map<ContentCoding, CodedBody | Promise<CodedBody>>();
  readonly #volatile: readonly string[];

  #tag: string | undefined;

  /**
   * @param hash of the body; by default it is made at the first use: many responses are sent
   *   without a tag
   */
  private constructor(body: Buffer | string, volatile: readonly string[], hash?: string) {
    this.body = body;
    this.#volatile = volatile;
    this.#tag = hash && `"${shortened(hash)}"`;
  }

  /**
   * The strong `ETag` of the representation. For a record with volatile fields, it begins with
   * the version of the record: the part that `If-Match` compares.
   */
  get tag(): string {
    this.#tag ??= `"${[...this.#version(), digestOf(this.body)].join('.')}"`;
    return this.#tag;
  }

  /** The digest of a record without its volatile fields; empty for a record that has none. */
  #version(): string[] {
    if (this.#volatile.length === 0) return [];

    return [digestOf(withoutMembers(String(this.body), this.#volatile))];
  }

  /**
   * Encodes JSON text.
   * @param volatile of a record: see `Route.volatile`
   */
  static ofText(text: string, volatile: readonly string[] = []): Representation {
    return new Representation(text.length <= maxTextLength ? text : ownBytes(text), volatile);
  }

  /**
   * Encodes a value. A value that may be large, such as a list, needs `ofList`.
   * @param volatile of a record: see `Route.volatile`
   */
  static of(value: unknown, volatile?: readonly string[]): Representation {
    return Representation.ofText(JSON.stringify(value), volatile);
  }

  /**
   * Encodes a list of records, given as JSON texts of one or more records. Lets the event loop
   * run between the parts of a large list.
   */
  static async ofList(texts: Iterable<string>): Promise<Representation> {
    const hashed = createHash('sha256');
    const parts: Buffer[] = [];
    let text = '[';
    let separator = '';

    for (const records of texts) {
      text += separator + records;
      separator = ',';
      if (text.length < partLength) continue;
      const part = Buffer.from(text);
      hashed.update(part);
      parts.push(part);
      text = '';
      await nextTurn();
    }

    text += ']';
    if (parts.length === 0) return Representation.ofText(text);

    parts.push(Buffer.from(text));
    return new Representation(Buffer.concat(parts), [], hashed.update(text).digest('base64url'));
  }

  /**
   * Encodes a list of records, given as rows whose column `json` is the JSON text of a record.
   */
  static ofRows(rows: readonly { readonly json: string }[]): Promise<Representation> {
    return Representation.ofList(rows.map(({ json }) => json));
  }

  /** Encodes text that is sent many times. */
  static ofDocument(text: string): Representation {
    const document = Representation.ofText(text);
    document.onGrowth = () => {};
    return document;
  }

  /**
   * Returns the same body under a tag that changes with the value of a header, too. After a 304,
   * browsers keep headers such as `Content-Range` of the response that they have stored (RFC
   * 9111 §3.2), so a response with another value must not be one.
   */
  taggedWith(header: string): Representation {
    const tagHash = hash('sha256', this.tag + header, 'base64url');
    return new Representation(this.body, this.#volatile, tagHash);
  }

  /** True when the body is worth compressing. */
  get isCompressible(): boolean {
    return this.onGrowth !== undefined && this.body.length >= minCodedLength;
  }

  /**
   * The strong `ETag` of the compressed body: it differs for each coding (RFC 9110 §8.8.3.3).
   */
  tagOf(coding: ContentCoding): string {
    return `${this.tag.slice(0, -1)}-${coding}"`;
  }

  /**
   * Returns the compressed body. The first calls return a promise, later ones the body itself.
   */
  coded(coding: ContentCoding): CodedBody | Promise<CodedBody> {
    let coded = this.#coded.get(coding);
    if (coded === undefined) {
      coded = this.#compress(coding);
      this.#coded.set(coding, coded);
      coded.catch(() => this.#coded.delete(coding)); // the next request tries again
    }
    return coded;
  }

  async #compress(coding: ContentCoding): Promise<CodedBody> {
    const bytes = await compress(
      coding,
      typeof this.body === 'string' ? Buffer.from(this.body) : this.body,
    );
    this.onGrowth?.(bytes.byteLength);
    const coded = { bytes, tag: this.tagOf(coding) };
    this.#coded.set(coding, coded);
    return coded;
  }

  /** Upper bound of the memory of the body, in bytes. */
  get size(): number {
    return typeof this.body === 'string' ? 2 * this.body.length : this.body.byteLength;
  }
}

/**
 * Checks a record before its change, given its view.
 * @throws {Problem} `precondition_failed`
 */
export type Precondition = (view: unknown) => void;

/**
 * Returns the demands of `If-Match` and `If-None-Match` on a record (RFC 9110 §13.1); undefined
 * without these headers. An empty one is refused: a client that sends it has lost the tag, and
 * without a demand its change would be unprotected.
 * @param volatile see `Route.volatile`
 * @throws {Problem} `invalid_request` when one of them is no list of tags
 */
export function preconditionOf(
  headers: IncomingHttpHeaders,
  volatile?: readonly string[],
): Precondition | undefined {
  const { 'if-match': required, 'if-none-match': refused } = headers;
  if (required === undefined && refused === undefined) return undefined;
  if (required !== undefined) requireTags('If-Match', required);
  if (refused !== undefined) requireTags('If-None-Match', refused);

  return view => {
    const { tag } = Representation.of(view, volatile);
    const isRefused = refused !== undefined && namesVersion(refused, tag);
    const isMet = required === undefined || namesVersion(required, tag);
    if (isRefused || !isMet) throw problem('precondition_failed');
  };
}

/**
 * Returns the part of the `ETag` of a record with volatile fields that `If-Match` compares, as a
 * tag.
 * @param lasting the record without its volatile fields, in the order of the view
 */
export function versionTag(lasting: object): string {
  return `"${digestOf(JSON.stringify(lasting))}"`;
}

const patterns = new WeakMap<readonly string[], RegExp>();

/** Returns the JSON text of a record without some of its members. */
function withoutMembers(text: string, names: readonly string[]): string {
  return text.replace(membersOf(names), '').replace(/,}$/, '}');
}

/**
 * The pattern of the members with these names in the JSON text of a record; their values are
 * texts, numbers, true, false or null. It matches no part of a text: a quotation mark in one has
 * a backslash before it. Parsing the record instead would take three times as long.
 */
function membersOf(names: readonly string[]): RegExp {
  let pattern = patterns.get(names);
  if (!pattern) {
    const value = String.raw`"(?:[^"\\]|\\.)*"|[^,}"]*`;
    pattern = new RegExp(`"(?:${names.join('|')})":(?:${value}),?`, 'g');
    patterns.set(names, pattern);
  }
  return pattern;
}

function digestOf(content: Buffer | string): string {
  return shortened(hash('sha256', content, 'base64url'));
}

function shortened(hash: string): string {
  return hash.slice(0, 27);
}

/**
 * Encodes text into a buffer outside Node's pool, because a cached slice would keep a whole
 * pool buffer alive.
 */
function ownBytes(text: string): Buffer {
  const bytes = Buffer.allocUnsafeSlow(Buffer.byteLength(text));
  bytes.write(text);
  return bytes;
}
