import { createHash, createHmac } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';

/** A request as it arrived: nothing of it is decoded. */
export interface SignedRequest {
  readonly method: string;
  /** With its query. */
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

export interface S3Login {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  /** The session token; undefined: a lasting login. */
  readonly sessionToken: string | undefined;
  readonly region: string;
}

/** A refusal of S3: its status and its code. */
export type S3Refusal = readonly [status: number, code: string];

const maxSkewMs = 15 * 60_000;
const header =
  /^AWS4-HMAC-SHA256 Credential=([^/]+)\/(\d{8})\/([^/]+)\/s3\/aws4_request, ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})$/;

/**
 * Checks a request as S3 does: login, clock, hash of the body and Signature Version 4, which it
 * computes by itself from the documentation of AWS ("Create a signed AWS API request"). Returns
 * undefined when everything is right.
 */
export function refuseSignature(
  request: SignedRequest,
  logins: readonly S3Login[],
  now: number,
): S3Refusal | undefined {
  const { headers } = request;
  if (!headers.authorization) return [403, 'AccessDenied'];
  const [, accessKeyId, date = '', region = '', signed = '', signature] =
    header.exec(headers.authorization) ?? [];
  if (signature === undefined) return [400, 'AuthorizationHeaderMalformed'];

  const login = logins.find(each => each.accessKeyId === accessKeyId);
  if (!login) return [403, 'InvalidAccessKeyId'];
  if (region !== login.region) return [400, 'AuthorizationHeaderMalformed'];
  if (headers['x-amz-security-token'] !== login.sessionToken) return [400, 'InvalidToken'];

  const time = String(headers['x-amz-date']);
  const sentAt = Date.parse(time.replace(/^(....)(..)(..T..)(..)(..Z)$/, '$1-$2-$3:$4:$5'));
  if (!time.startsWith(date) || !(Math.abs(sentAt - now) <= maxSkewMs)) {
    return [403, 'RequestTimeTooSkewed'];
  }

  const names = signed.split(';');
  const isSigned = (name: string): boolean => names.includes(name);
  if (
    !isSigned('host') ||
    !Object.keys(headers).every(name => !name.startsWith('x-amz-') || isSigned(name))
  ) {
    return [403, 'AccessDenied'];
  }
  if (headers['x-amz-content-sha256'] !== sha256(request.body)) {
    return [400, 'XAmzContentSHA256Mismatch'];
  }

  const scope = `${date}/${region}/s3/aws4_request`;
  const text = ['AWS4-HMAC-SHA256', time, scope, sha256(canonicalRequest(request, names))].join(
    '\n',
  );
  const key = [date, region, 's3', 'aws4_request'].reduce<string | Buffer>(
    hmac,
    `AWS4${login.secretAccessKey}`,
  );

  return hmac(key, text).toString('hex') === signature ? undefined : [403, 'SignatureDoesNotMatch'];
}

function canonicalRequest(
  { method, url, headers }: SignedRequest,
  names: readonly string[],
): string {
  const [path = '', query = ''] = url.split(/\?(.*)/s);
  const pairs = query
    .split('&')
    .filter(Boolean)
    .map(pair => {
      const [name = '', value = ''] = pair.split(/=(.*)/s).map(decodeURIComponent);
      return `${encode(name)}=${encode(value)}`;
    });
  return [
    method,
    decodeURIComponent(path).split('/').map(encode).join('/'),
    pairs.sort().join('&'),
    ...names.map(name => `${name}:${String(headers[name]).trim().replace(/ +/g, ' ')}`),
    '',
    names.join(';'),
    headers['x-amz-content-sha256'],
  ].join('\n');
}

/** `UriEncode` of the documentation: all but the unreserved characters of RFC 3986. */
function encode(text: string): string {
  return encodeURIComponent(text).replace(
    /[!'()*]/g,
    sign => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

function sha256(bytes: Buffer | string): string {
  return createHash('sha256').update(bytes).digest('hex');
}

function hmac(key: string | Buffer, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest();
}
