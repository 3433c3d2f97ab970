import { createHash, randomBytes } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { crc32 } from 'node:zlib';
import type { S3Refusal } from './s3-signature.ts';

/** A response: a document (XML), or the bytes of an object. */
export interface S3Response {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

const minPartBytes = 5 * 1024 * 1024;

/**
 * A way in which a store treats a write with a condition: as Amazon's does, without looking
 * at it, or not at all.
 */
export type ConditionSupport = 'heeded' | 'ignored' | 'refused';

/** A version of an object; without bytes: a marker that it was deleted. */
interface Version {
  readonly id: string;
  readonly key: string;
  readonly bytes: Buffer | undefined;
}

/** The objects, their versions and the unfinished uploads of one bucket, in memory. */
export class S3Store {
  readonly objects = new Map<string, Buffer>();
  readonly uploads = new Map<
    string,
    { readonly key: string; readonly parts: Map<number, Buffer> }
  >();
  /** The oldest first. Undefined: the bucket keeps no versions. */
  versions: Version[] | undefined;
  conditions: ConditionSupport = 'heeded';
  /** The bytes of objects for which it has room. */
  capacity = Number.POSITIVE_INFINITY;
  /** True: the tags of its responses are weak, as behind a proxy that compresses. */
  weakensTags = false;
  /**
   * Returns the former bytes of an object that a read still gets; undefined: the present ones.
   */
  lateBytesOf: (key: string) => Buffer | undefined = () => undefined;
  /** False: a question for versions or uploads is answered with a list of objects. */
  knowsVersions = true;
  readonly #maxKeys: number;
  readonly #modified = new Map<string, Date>();

  /** @param maxKeys of one page of a list; that of Amazon is 1,000 */
  constructor(maxKeys: number) {
    this.#maxKeys = maxKeys;
  }

  /** @param key decoded; empty: the bucket */
  respond(
    method: string,
    key: string,
    query: ReadonlyMap<string, string>,
    body: Buffer,
    headers: IncomingHttpHeaders = {},
  ): S3Response {
    const id = query.get('uploadId');
    const names = [...query.keys()].filter(name => !['prefix', 'max-keys', 'x-id'].includes(name));
    const kind = `${method} ${key ? 'object' : 'bucket'} ${names.sort().join(' ')}`.trim();
    const sum = headers['x-amz-checksum-crc32'];
    if (sum !== undefined && sum !== checksumOf(body)) return refused([400, 'BadDigest']);

    switch (kind) {
      case 'GET bucket list-type':
      case 'GET bucket continuation-token list-type':
        return this.#list(query);
      case 'GET bucket uploads':
      case 'GET bucket key-marker upload-id-marker uploads':
        return this.knowsVersions ? this.#listUploads(query) : this.#list(query);
      case 'GET bucket versions':
      case 'GET bucket key-marker version-id-marker versions':
        return this.knowsVersions ? this.#listVersions(query) : this.#list(query);
      case 'GET object': {
        const late = this.lateBytesOf(key);
        const bytes = late ?? this.objects.get(key);
        if (!bytes) return refused([404, 'NoSuchKey']);
        const tag = etagOf(bytes);
        const checksum = headers['x-amz-checksum-mode']
          ? { 'x-amz-checksum-crc32': late ? checksumOf(late) : (this.#sums.get(key) ?? '') }
          : {};
        const etag = this.weakensTags ? `W/${tag}` : tag;
        return { status: 200, headers: { etag, ...checksum }, body: bytes };
      }
      case 'PUT object':
        return this.#refuseCondition(key, headers) ?? this.#put(key, body);
      case 'DELETE object':
        this.#delete(key);
        return { status: 204, body: Buffer.alloc(0) };
      case 'DELETE object versionId':
        this.#deleteVersion(key, query.get('versionId') ?? '');
        return { status: 204, body: Buffer.alloc(0) };
      case 'POST object uploads':
        return this.#begin(key);
      case 'PUT object partNumber uploadId':
        return this.#putPart(id, Number(query.get('partNumber')), body);
      case 'POST object uploadId':
        return this.#complete(id, body.toString());
      case 'DELETE object uploadId':
        return this.uploads.delete(id ?? '')
          ? { status: 204, body: Buffer.alloc(0) }
          : refused([404, 'NoSuchUpload']);
      default:
        return refused([501, 'NotImplemented']);
    }
  }

  /**
   * The checksums that the store has computed of its objects: a test that damages an object
   * leaves them.
   */
  readonly #sums = new Map<string, string>();

  #put(key: string, body: Buffer): S3Response {
    const others = [...this.objects].filter(([other]) => other !== key);
    const used = others.reduce((sum, [, bytes]) => sum + bytes.length, 0);
    if (used + body.length > this.capacity) return refused([507, 'XMinioStorageFull']);

    this.objects.set(key, body);
    this.#sums.set(key, checksumOf(body));
    this.#modified.set(key, new Date());
    this.versions?.push({ id: randomBytes(8).toString('hex'), key, bytes: body });

    return { status: 200, headers: { etag: etagOf(body) }, body: Buffer.alloc(0) };
  }

  #refuseCondition(key: string, headers: IncomingHttpHeaders): S3Response | undefined {
    const match = headers['if-match'];
    const isNew = headers['if-none-match'] === '*';
    if ((match === undefined && !isNew) || this.conditions === 'ignored') return undefined;
    if (this.conditions === 'refused') return refused([501, 'NotImplemented']);

    const present = this.objects.get(key);
    if (isNew) return present ? refused([412, 'PreconditionFailed']) : undefined;
    if (!present) return refused([404, 'NoSuchKey']);
    return etagOf(present) === match ? undefined : refused([412, 'PreconditionFailed']);
  }

  #delete(key: string): void {
    this.objects.delete(key);
    this.versions?.push({ id: randomBytes(8).toString('hex'), key, bytes: undefined });
  }

  /** The newest of the other versions becomes the object. */
  #deleteVersion(key: string, id: string): void {
    if (!this.versions) {
      if (id === 'null') this.objects.delete(key);
      return;
    }
    this.versions = this.versions.filter(version => version.key !== key || version.id !== id);
    const present = this.versions.findLast(version => version.key === key)?.bytes;
    if (present) this.objects.set(key, present);
    else this.objects.delete(key);
  }

  #listVersions(query: ReadonlyMap<string, string>): S3Response {
    const prefix = query.get('prefix') ?? '';
    const all: Version[] =
      this.versions ??
      [...this.objects].map(([key, bytes]): Version => ({ id: 'null', key, bytes }));
    const after = `${query.get('key-marker') ?? ''}\0${query.get('version-id-marker') ?? ''}`;
    const places = all
      .filter(({ key }) => key.startsWith(prefix))
      .map(each => ({ each, place: `${each.key}\0${each.id}` }));
    const left = places
      .sort((a, b) => (a.place < b.place ? -1 : 1))
      .filter(({ place }) => place > after);
    const page = left.slice(
      0,
      Math.min(Number(query.get('max-keys') ?? this.#maxKeys), this.#maxKeys),
    );
    const last = page.at(-1)?.each;

    return document(
      'ListVersionsResult',
      `<IsTruncated>${page.length < left.length}</IsTruncated>`,
      last
        ? `<NextKeyMarker>${escapeXml(last.key)}</NextKeyMarker><NextVersionIdMarker>${last.id}</NextVersionIdMarker>`
        : '',
      ...page.map(({ each: { key, id, bytes } }) => {
        const element = bytes ? 'Version' : 'DeleteMarker';
        return `<${element}><Key>${escapeXml(key)}</Key><VersionId>${id}</VersionId></${element}>`;
      }),
    );
  }

  #list(query: ReadonlyMap<string, string>): S3Response {
    const after = Buffer.from(query.get('continuation-token') ?? '', 'base64').toString();
    const keys = sorted(this.objects.keys()).filter(
      key => key > after && key.startsWith(query.get('prefix') ?? ''),
    );
    const page = keys.slice(
      0,
      Math.min(Number(query.get('max-keys') ?? this.#maxKeys), this.#maxKeys),
    );
    const next = Buffer.from(page.at(-1) ?? '').toString('base64');
    return document(
      'ListBucketResult',
      `<IsTruncated>${page.length < keys.length}</IsTruncated>`,
      page.length < keys.length ? `<NextContinuationToken>${next}</NextContinuationToken>` : '',
      ...page.map(key => {
        const bytes = this.objects.get(key) ?? Buffer.alloc(0);
        return `<Contents><Key>${escapeXml(key)}</Key><LastModified>${(this.#modified.get(key) ?? new Date(0)).toISOString()}</LastModified><ETag>${escapeXml(etagOf(bytes))}</ETag><Size>${bytes.length}</Size></Contents>`;
      }),
    );
  }

  /** The markers are those of the last upload: a list is sorted by key, and then by id. */
  #listUploads(query: ReadonlyMap<string, string>): S3Response {
    const after = `${query.get('key-marker') ?? ''}\0${query.get('upload-id-marker') ?? ''}`;
    const places = [...this.uploads].map(([id, { key }]) => `${key}\0${id}`);
    const left = places
      .sort()
      .filter(place => place > after && place.startsWith(query.get('prefix') ?? ''));
    const page = left.slice(0, this.#maxKeys).map(place => place.split('\0').map(escapeXml));
    const [key, id] = page.at(-1) ?? [];
    return document(
      'ListMultipartUploadsResult',
      `<IsTruncated>${page.length < left.length}</IsTruncated>`,
      `<NextKeyMarker>${key}</NextKeyMarker><NextUploadIdMarker>${id}</NextUploadIdMarker>`,
      ...page.map(
        ([name, upload]) => `<Upload><Key>${name}</Key><UploadId>${upload}</UploadId></Upload>`,
      ),
    );
  }

  #begin(key: string): S3Response {
    const id = `${randomBytes(12).toString('base64')}&`;
    this.uploads.set(id, { key, parts: new Map() });
    return document('InitiateMultipartUploadResult', `<UploadId>${escapeXml(id)}</UploadId>`);
  }

  #putPart(id: string | undefined, number: number, body: Buffer): S3Response {
    const upload = this.uploads.get(id ?? '');
    if (!upload) return refused([404, 'NoSuchUpload']);
    if (!(number >= 1 && number <= 10_000)) return refused([400, 'InvalidArgument']);
    upload.parts.set(number, body);
    return { status: 200, headers: { etag: etagOf(body) }, body: Buffer.alloc(0) };
  }

  #complete(id: string | undefined, request: string): S3Response {
    const upload = this.uploads.get(id ?? '');
    if (!upload) return refused([404, 'NoSuchUpload']);

    const named = [...request.matchAll(/<Part>(.*?)<\/Part>/gs)].map(([, part = '']) => ({
      number: Number(/<PartNumber>(\d+)</.exec(part)?.[1]),
      etag: (/<ETag>([^<]*)</.exec(part)?.[1] ?? '').replaceAll('&quot;', '"'),
    }));
    if (named.length === 0) return refused([400, 'MalformedXML']);

    const parts: Buffer[] = [];
    for (const [at, { number, etag }] of named.entries()) {
      const part = upload.parts.get(number);
      if (!part || etagOf(part) !== etag) return refused([400, 'InvalidPart']);
      if (at > 0 && number <= (named[at - 1]?.number ?? 0)) {
        return refused([400, 'InvalidPartOrder']);
      }
      if (at < named.length - 1 && part.length < minPartBytes) {
        return refused([400, 'EntityTooSmall']);
      }
      parts.push(part);
    }

    this.#put(upload.key, Buffer.concat(parts));
    this.uploads.delete(id ?? '');
    return document('CompleteMultipartUploadResult', `<Key>${escapeXml(upload.key)}</Key>`);
  }
}

export function refused([status, code]: S3Refusal): S3Response {
  const message = 'The message can name keys: arn:aws:iam::123456789012:user/operator';
  const body = Buffer.from(
    `<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>${code}</Code><Message>${message}</Message></Error>`,
  );
  return { status, headers: { 'content-type': 'application/xml' }, body };
}

function document(name: string, ...elements: string[]): S3Response {
  const text = `<?xml version="1.0" encoding="UTF-8"?>\n<${name} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">`;
  const body = Buffer.from(`${text}${elements.join('')}</${name}>`);
  return { status: 200, headers: { 'content-type': 'application/xml' }, body };
}

function sorted(keys: Iterable<string>): string[] {
  return [...keys].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
}

function etagOf(bytes: Buffer): string {
  return `"${createHash('md5').update(bytes).digest('hex')}"`;
}

function checksumOf(bytes: Buffer): string {
  const sum = Buffer.alloc(4);
  sum.writeUInt32BE(crc32(bytes));
  return sum.toString('base64');
}

function escapeXml(text: string): string {
  return text.replace(/[&<>"]/g, sign => `&#${sign.charCodeAt(0)};`);
}
