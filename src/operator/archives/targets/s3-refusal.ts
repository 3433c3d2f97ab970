import { OperatorError } from '../../../log/operator-error.ts';
import { xmlText } from './s3-xml.ts';

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
