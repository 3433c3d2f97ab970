import { createHash, randomBytes } from 'node:crypto';
import type { S3Refusal } from './s3-signature.ts';

/** A response: a document (XML), or the bytes of an object. */
export interface S3Response {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

const minPartBytes = 5 * 1024 * 1024;

/** The objects and the unfinished uploads of one bucket, in memory. */
export class S3Store {
  readonly objects = new Map<string, Buffer>();
  readonly uploads = new Map<string, { readonly key: string; readonly parts: Map<number, Buffer> }>();
  readonly #maxKeys: number;

  /** @param maxKeys of one page of a list; that of Amazon is 1,000 */
  constructor(maxKeys: number) {
    this.#maxKeys = maxKeys;
  }

  /** @param key decoded; empty: the bucket */
  respond(method: string, key: string, query: ReadonlyMap<string, string>, body: Buffer): S3Response {
    const id = query.get('uploadId');
    const names = [...query.keys()].filter(name => name !== 'prefix' && name !== 'max-keys');
    const kind = `${method} ${key ? 'object' : 'bucket'} ${names.sort().join(' ')}`.trim();
    switch (kind) {
      case 'GET bucket list-type':
      case 'GET bucket continuation-token list-type':
        return this.#list(query);
      case 'GET bucket uploads':
      case 'GET bucket key-marker upload-id-marker uploads':
        return this.#listUploads(query);
      case 'GET object': {
        const bytes = this.objects.get(key);
        return bytes ? { status: 200, headers: { etag: etagOf(bytes) }, body: bytes } : refused([404, 'NoSuchKey']);
      }
      case 'PUT object':
        this.objects.set(key, body);
        return { status: 200, headers: { etag: etagOf(body) }, body: Buffer.alloc(0) };
      case 'DELETE object':
        this.objects.delete(key);
        return { status: 204, body: Buffer.alloc(0) };
      case 'POST object uploads':
        return this.#begin(key);
      case 'PUT object partNumber uploadId':
        return this.#putPart(id, Number(query.get('partNumber')), body);
      case 'POST object uploadId':
        return this.#complete(id, body.toString());
      case 'DELETE object uploadId':
        return this.uploads.delete(id ?? '') ? { status: 204, body: Buffer.alloc(0) } : refused([404, 'NoSuchUpload']);
      default:
        return refused([501, 'NotImplemented']);
    }
  }

  #list(query: ReadonlyMap<string, string>): S3Response {
    const after = Buffer.from(query.get('continuation-token') ?? '', 'base64').toString();
    const keys = sorted(this.objects.keys()).filter(key => key > after && key.startsWith(query.get('prefix') ?? ''));
    const page = keys.slice(0, Math.min(Number(query.get('max-keys') ?? this.#maxKeys), this.#maxKeys));
    const next = Buffer.from(page.at(-1) ?? '').toString('base64');
    return document(
      'ListBucketResult',
      `<IsTruncated>${page.length < keys.length}</IsTruncated>`,
      page.length < keys.length ? `<NextContinuationToken>${next}</NextContinuationToken>` : '',
      ...page.map(key => {
        const bytes = this.objects.get(key) ?? Buffer.alloc(0);
        return `<Contents><Key>${escapeXml(key)}</Key><ETag>${escapeXml(etagOf(bytes))}</ETag><Size>${bytes.length}</Size></Contents>`;
      }),
    );
  }

  /** The markers are those of the last upload: a list is sorted by key, and then by id. */
  #listUploads(query: ReadonlyMap<string, string>): S3Response {
    const after = `${query.get('key-marker') ?? ''}\0${query.get('upload-id-marker') ?? ''}`;
    const places = [...this.uploads].map(([id, { key }]) => `${key}\0${id}`);
    const left = places.sort().filter(place => place > after && place.startsWith(query.get('prefix') ?? ''));
    const page = left.slice(0, this.#maxKeys).map(place => place.split('\0').map(escapeXml));
    const [key, id] = page.at(-1) ?? [];
    return document(
      'ListMultipartUploadsResult',
      `<IsTruncated>${page.length < left.length}</IsTruncated>`,
      `<NextKeyMarker>${key}</NextKeyMarker><NextUploadIdMarker>${id}</NextUploadIdMarker>`,
      ...page.map(([name, upload]) => `<Upload><Key>${name}</Key><UploadId>${upload}</UploadId></Upload>`),
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
    const named = [...request.matchAll(/<Part><PartNumber>(\d+)<\/PartNumber><ETag>([^<]*)<\/ETag><\/Part>/g)];
    if (named.length === 0) return refused([400, 'MalformedXML']);
    const parts: Buffer[] = [];
    for (const [at, [, number, etag]] of named.entries()) {
      const part = upload.parts.get(Number(number));
      if (!part || etagOf(part) !== etag) return refused([400, 'InvalidPart']);
      if (at > 0 && Number(number) <= Number(named[at - 1]?.[1])) return refused([400, 'InvalidPartOrder']);
      if (at < named.length - 1 && part.length < minPartBytes) return refused([400, 'EntityTooSmall']);
      parts.push(part);
    }
    this.objects.set(upload.key, Buffer.concat(parts));
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

function escapeXml(text: string): string {
  return text.replace(/[&<>"]/g, sign => `&#${sign.charCodeAt(0)};`);
}
