import { OperatorError } from '../../../log/operator-error.ts';

const remedies: Readonly<Record<string, string>> = {
  NoSuchBucket: 'Create the bucket, or correct BACKUP_TARGET',
  AccessDenied: 'Give the key the rights to list, read, write and delete in the bucket',
  InvalidAccessKeyId: 'Check AWS_ACCESS_KEY_ID',
  SignatureDoesNotMatch: 'Check AWS_SECRET_ACCESS_KEY',
  InvalidToken: 'Check AWS_SESSION_TOKEN',
  ExpiredToken: 'Renew AWS_SESSION_TOKEN',
  RequestTimeTooSkewed: 'Set the clock of this machine',
  AuthorizationHeaderMalformed: 'Check AWS_REGION',
};

/**
 * Explains a response of the store by its code. The body can name keys of the operator, so it is not printed.
 * @param location of a redirect
 */
export function explainRefusal(
  description: string,
  status: number,
  location: string | undefined,
  body: string,
): OperatorError {
  const code = xmlText(body, 'Code') ?? 'without a code';
  if (status >= 300 && status < 400) {
    const host = location && URL.canParse(location) ? new URL(location).host : 'another address';
    return new OperatorError(
      `${description} redirects to ${host} (${status} ${code}), which gets no login. Set AWS_ENDPOINT_URL and AWS_REGION to those of the bucket`,
    );
  }
  return new OperatorError(`${description} refused a request: ${status} ${code}. ${remedies[code] ?? 'Try it again'}`);
}

/*
 * Reads the few documents of S3 that the backup needs. Their elements have no attributes and are not nested in elements
 * of the same name, so that no XML parser is needed.
 */

/** Returns the text of the first element with this name; undefined when there is none. */
export function xmlText(document: string, name: string): string | undefined {
  const text = new RegExp(`<${name}>([^<]*)</${name}>`).exec(document)?.[1];
  return text === undefined ? undefined : decodeXml(text);
}

/** Returns the contents of all elements with this name. */
export function xmlBlocks(document: string, name: string): string[] {
  return [...document.matchAll(new RegExp(`<${name}>(.*?)</${name}>`, 'gs'))].map(match => match[1] ?? '');
}

/** Replaces character references (XML 1.0 §4.1). */
function decodeXml(text: string): string {
  const named: Record<string, string> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" };
  return text.replace(/&(?:#(\d+)|#x([0-9a-f]+)|(\w+));/gi, (whole, decimal, hex, name) => {
    if (decimal) return String.fromCodePoint(Number(decimal));
    if (hex) return String.fromCodePoint(Number.parseInt(hex, 16));
    return named[name] ?? whole;
  });
}
