import { text } from 'node:stream/consumers';
import { OperatorError } from '../../../log/operator-error.ts';
import { inPieces } from '../format/frames.ts';
import type { BackupTarget, StoredFile } from './backup-target.ts';
import { explainRefusal, xmlBlocks, xmlText } from './s3-refusal.ts';
import { type S3Login, S3Requests } from './s3-requests.ts';
import { type TargetLimits, targetLimits } from './target-calls.ts';

export interface S3Settings extends S3Login {
  readonly bucket: string;
  /** Without a slash at its ends; may be empty. */
  readonly prefix: string;
  /** Of a store that is not Amazon's; undefined: Amazon's of the region. */
  readonly endpoint: string | undefined;
}

/** Bytes of a part of an upload, above the 5 MiB that S3 demands. At most 10,000 parts: 78 GiB. */
const partBytes = 8 * 1024 * 1024;

/**
 * Stores archives in a bucket of S3, or of a store with its protocol. A file up to 8 MiB is one request, a larger one a
 * multipart upload: both appear whole or not at all.
 */
export function s3Target(settings: S3Settings, limits: TargetLimits = targetLimits): BackupTarget {
  const { bucket, prefix, endpoint, region, accessKeyId, secretAccessKey, sessionToken } = settings;
  const root = `${(endpoint ?? `https://s3.${region}.amazonaws.com`).replace(/\/+$/, '')}/${bucket}`;
  const description = `s3://${bucket}${prefix && `/${prefix}`}`;
  const requests = new S3Requests(description, { region, accessKeyId, secretAccessKey, sessionToken }, limits);
  const keyOf = (name: string): string => (prefix ? `${prefix}/${name}` : name);
  const nameOf = (key: string): string => (prefix ? key.slice(prefix.length + 1) : key);
  const urlOf = (name: string): string => `${root}/${keyOf(name).split('/').map(encodeURIComponent).join('/')}`;

  const upload = async (name: string, bytes: AsyncIterable<Buffer>): Promise<number> => {
    const url = urlOf(name);
    const call = `write ${name}`;
    const etags: string[] = [];
    let id: string | undefined;
    let length = 0;
    try {
      for await (const { bytes: part, isLast } of inPieces(bytes, partBytes)) {
        length += part.length;
        if (isLast && !id) {
          await requests.send({ call, method: 'PUT', url, body: part });
          return length;
        }
        id ??= required((await requests.send({ call, method: 'POST', url: `${url}?uploads=` })).text, 'UploadId');
        const query = `partNumber=${etags.length + 1}&uploadId=${encodeURIComponent(id)}`;
        const { headers } = await requests.send({ call, method: 'PUT', url: `${url}?${query}`, body: part });
        etags.push(headers.etag ?? '');
      }
      const parts = etags.map((etag, at) => `<Part><PartNumber>${at + 1}</PartNumber><ETag>${etag}</ETag></Part>`);
      const body = Buffer.from(`<CompleteMultipartUpload>${parts.join('')}</CompleteMultipartUpload>`);
      const end = `${url}?uploadId=${encodeURIComponent(id ?? '')}`;
      const { status, text } = await requests.send({ call, method: 'POST', url: end, body });
      // The response begins before the store has put the parts together, so an error can come with status 200.
      if (text.includes('<Error>')) throw explainRefusal(description, status, undefined, text);
      return length;
    } catch (error) {
      if (id) await endUpload(name, id).catch(() => {});
      throw error;
    }
  };

  const endUpload = async (name: string, id: string): Promise<void> => {
    const url = `${urlOf(name)}?uploadId=${encodeURIComponent(id)}`;
    await requests.send({ call: `remove the unfinished ${name}`, method: 'DELETE', url, allowed: [404] });
  };

  const required = (document: string, element: string): string => {
    const text = xmlText(document, element);
    if (!text)
      throw new OperatorError(`${description} sent no ${element}. Check that AWS_ENDPOINT_URL is a store of S3`);
    return text;
  };

  return {
    description,
    check: async () => {
      const url = `${root}?list-type=2&max-keys=1&prefix=${encodeURIComponent(keyOf(''))}`;
      await requests.send({ call: 'check the target', method: 'GET', url });
    },
    write: upload,
    read: async name => {
      const call = `read ${name}`;
      const response = await requests.open({ call, method: 'GET', url: urlOf(name), allowed: [404] });
      if (response.statusCode !== 404) return requests.chunks(call, response);
      const body = await text(requests.chunks(call, response));
      if (xmlText(body, 'Code') === 'NoSuchKey') return undefined;
      throw explainRefusal(description, 404, undefined, body);
    },
    remove: async name => {
      await requests.send({ call: `remove ${name}`, method: 'DELETE', url: urlOf(name) });
    },
    async *list(start: string): AsyncGenerator<StoredFile> {
      let next = '';
      do {
        const url = `${root}?list-type=2&prefix=${encodeURIComponent(keyOf(start))}${next}`;
        const { text } = await requests.send({ call: `list ${start}`, method: 'GET', url });
        for (const block of xmlBlocks(text, 'Contents'))
          yield { name: nameOf(required(block, 'Key')), bytes: Number(xmlText(block, 'Size')) };
        const isCut = xmlText(text, 'IsTruncated') === 'true';
        next = isCut ? `&continuation-token=${encodeURIComponent(required(text, 'NextContinuationToken'))}` : '';
      } while (next);
    },
    removeUnfinished: async folder => {
      let next = '';
      do {
        const url = `${root}?uploads=&prefix=${encodeURIComponent(keyOf(folder))}${next}`;
        // Some stores do not list uploads, and a login may not. A rule of the bucket ends forgotten ones.
        const request = { call: 'list unfinished files', method: 'GET', url, allowed: [403, 501] } as const;
        const { status, text } = await requests.send(request);
        if (status >= 400) return;
        for (const block of xmlBlocks(text, 'Upload'))
          await endUpload(nameOf(required(block, 'Key')), required(block, 'UploadId'));
        next = '';
        if (xmlText(text, 'IsTruncated') === 'true') {
          const [key, id] = [required(text, 'NextKeyMarker'), required(text, 'NextUploadIdMarker')];
          next = `&key-marker=${encodeURIComponent(key)}&upload-id-marker=${encodeURIComponent(id)}`;
        }
      } while (next);
    },
  };
}
