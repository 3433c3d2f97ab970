import { createHash } from 'node:crypto';
import { AwsClient } from 'aws4fetch';
import { OperatorError } from '../../../operator-error.ts';
import type { BackupTarget, StoredFile } from './backup-target.ts';
import { decodeXml, xmlBlocks, xmlText } from './s3-xml.ts';

export interface S3Settings {
  readonly bucket: string;
  /** Without a slash at its ends; may be empty. */
  readonly prefix: string;
  /** Of a store that is not Amazon's; undefined: Amazon's of the region. */
  readonly endpoint: string | undefined;
  readonly region: string;
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken: string | undefined;
}

/** Bytes of a part of an upload, above the 5 MiB that S3 demands. At most 10,000 parts: 78 GiB. */
const partBytes = 8 * 1024 * 1024;
const maxRetries = 4;
const requestTimeoutMs = 120_000;

/**
 * Stores archives in a bucket of S3, or of a store with its protocol. A file up to 8 MiB is one request, a larger one a
 * multipart upload: both appear whole or not at all. The requests are signed, also their bodies (Signature Version 4).
 */
export function s3Target(settings: S3Settings): BackupTarget {
  const { bucket, prefix, region, accessKeyId, secretAccessKey, sessionToken } = settings;
  const client = new AwsClient({
    accessKeyId,
    secretAccessKey,
    ...(sessionToken && { sessionToken }),
    region,
    service: 's3',
    retries: maxRetries,
  });
  const root = `${(settings.endpoint ?? `https://s3.${region}.amazonaws.com`).replace(/\/+$/, '')}/${bucket}`;
  const description = `s3://${bucket}${prefix && `/${prefix}`}`;
  const keyOf = (name: string): string => (prefix ? `${prefix}/${name}` : name);
  const urlOf = (name: string): string => `${root}/${keyOf(name).split('/').map(encodeURIComponent).join('/')}`;

  const send = async (method: string, url: string, body: Buffer = Buffer.alloc(0)): Promise<Response> => {
    try {
      return await client.fetch(url, {
        method,
        headers: { 'x-amz-content-sha256': createHash('sha256').update(body).digest('hex') },
        // A download may take longer. The default of fetch ends it after 5 minutes without a byte.
        signal: method === 'GET' ? null : AbortSignal.timeout(requestTimeoutMs),
        ...(body.length > 0 && { body: new Uint8Array(body) }),
      });
    } catch (cause) {
      const { code } = ((cause as Error).cause ?? {}) as NodeJS.ErrnoException;
      const reason = code ?? (cause as Error).name;
      throw new OperatorError(
        `${description} cannot be reached (${reason}). Check BACKUP_TARGET and AWS_ENDPOINT_URL`,
        {
          cause,
        },
      );
    }
  };
  const request = async (method: string, url: string, body?: Buffer): Promise<Response> => {
    const response = await send(method, url, body);
    if (response.ok) return response;
    throw refusal(description, response.status, await response.text());
  };

  const upload = async (name: string, bytes: AsyncIterable<Buffer>): Promise<number> => {
    const url = urlOf(name);
    const etags: string[] = [];
    let id: string | undefined;
    let length = 0;
    try {
      for await (const { part, isLast } of inParts(bytes)) {
        length += part.length;
        if (isLast && !id) {
          await request('PUT', url, part);
          return length;
        }
        id ??= xmlText(await (await request('POST', `${url}?uploads=`)).text(), 'UploadId') ?? '';
        const query = `partNumber=${etags.length + 1}&uploadId=${encodeURIComponent(id)}`;
        const response = await request('PUT', `${url}?${query}`, part);
        etags.push(response.headers.get('etag') ?? '');
      }
      const parts = etags.map((etag, at) => `<Part><PartNumber>${at + 1}</PartNumber><ETag>${etag}</ETag></Part>`);
      const document = `<CompleteMultipartUpload>${parts.join('')}</CompleteMultipartUpload>`;
      const completed = await request('POST', `${url}?uploadId=${encodeURIComponent(id ?? '')}`, Buffer.from(document));
      // The response begins before the store has put the parts together, so an error can come with status 200.
      const text = await completed.text();
      if (text.includes('<Error>')) throw refusal(description, completed.status, text);
      return length;
    } catch (error) {
      if (id) await send('DELETE', `${url}?uploadId=${encodeURIComponent(id)}`).catch(() => {});
      throw error;
    }
  };

  const listPages = async function* (query: string, tag: string): AsyncGenerator<string> {
    let text: string;
    let next = '';
    do {
      text = await (await request('GET', `${root}?${query}${next}`)).text();
      yield* xmlBlocks(text, tag);
      next = nextPage(text);
    } while (next);
  };

  return {
    description,
    check: async () => {
      await request('GET', `${root}?list-type=2&max-keys=1&prefix=${encodeURIComponent(keyOf(''))}`);
    },
    write: upload,
    read: async name => {
      const response = await send('GET', urlOf(name));
      if (response.status === 404) {
        const text = await response.text();
        if (xmlText(text, 'Code') === 'NoSuchKey') return undefined;
        throw refusal(description, 404, text);
      }
      if (!response.ok) throw refusal(description, response.status, await response.text());
      return chunksOf(response);
    },
    remove: async name => {
      await request('DELETE', urlOf(name));
    },
    async *list(start: string): AsyncGenerator<StoredFile> {
      const query = `list-type=2&prefix=${encodeURIComponent(keyOf(start))}`;
      for await (const block of listPages(query, 'Contents')) {
        const key = decodeXml(xmlText(block, 'Key') ?? '');
        yield { name: prefix ? key.slice(prefix.length + 1) : key, bytes: Number(xmlText(block, 'Size')) };
      }
    },
    removeUnfinished: async () => {
      const response = await send('GET', `${root}?uploads=&prefix=${encodeURIComponent(keyOf(''))}`);
      const text = await response.text();
      // Some stores do not list uploads. They end forgotten ones by a rule of the bucket.
      if (response.status === 501) return;
      if (!response.ok) throw refusal(description, response.status, text);
      for (const block of xmlBlocks(text, 'Upload')) {
        const key = decodeXml(xmlText(block, 'Key') ?? '').slice(prefix ? prefix.length + 1 : 0);
        const id = encodeURIComponent(xmlText(block, 'UploadId') ?? '');
        await send('DELETE', `${urlOf(key)}?uploadId=${id}`);
      }
    },
  };
}

function nextPage(text: string): string {
  const token = xmlText(text, 'IsTruncated') === 'true' ? xmlText(text, 'NextContinuationToken') : undefined;
  return token ? `&continuation-token=${encodeURIComponent(decodeXml(token))}` : '';
}

/** Explains a response of the store by its code. The body can name keys of the operator, so it is not printed. */
function refusal(description: string, status: number, body: string): OperatorError {
  const code = xmlText(body, 'Code') ?? 'without a code';
  const remedies: Record<string, string> = {
    NoSuchBucket: 'Create the bucket, or correct BACKUP_TARGET',
    AccessDenied: 'Give the key the rights to list, read, write and delete in the bucket',
    InvalidAccessKeyId: 'Check AWS_ACCESS_KEY_ID',
    SignatureDoesNotMatch: 'Check AWS_SECRET_ACCESS_KEY',
    ExpiredToken: 'Renew AWS_SESSION_TOKEN',
    PermanentRedirect: 'Check AWS_REGION',
    AuthorizationHeaderMalformed: 'Check AWS_REGION',
  };
  return new OperatorError(`${description} refused a request: ${status} ${code}. ${remedies[code] ?? 'Try it again'}`);
}

async function* chunksOf(response: Response): AsyncGenerator<Buffer> {
  if (!response.body) return;
  for await (const chunk of response.body) yield Buffer.from(chunk);
}

/** Cuts a stream into parts, the last of which is marked. */
async function* inParts(source: AsyncIterable<Buffer>): AsyncGenerator<{ part: Buffer; isLast: boolean }> {
  let chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of source) {
    if (length > 0 && length + chunk.length > partBytes) {
      yield { part: Buffer.concat(chunks), isLast: false };
      chunks = [];
      length = 0;
    }
    chunks.push(chunk);
    length += chunk.length;
  }
  yield { part: Buffer.concat(chunks), isLast: true };
}
