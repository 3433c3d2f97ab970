import { OperatorError } from '../../../lib/log/operator-error.ts';

const remedies: Readonly<Record<string, string>> = {
  NoSuchBucket: 'Create the bucket, or correct BACKUP_TARGET',
  AccessDenied: 'Give the login the rights to list, read, write and delete in the bucket',
  InvalidAccessKeyId: 'Check AWS_ACCESS_KEY_ID',
  SignatureDoesNotMatch: 'Check AWS_SECRET_ACCESS_KEY',
  InvalidToken: 'Check AWS_SESSION_TOKEN',
  ExpiredToken: 'Renew AWS_SESSION_TOKEN',
  RequestTimeTooSkewed: 'Set the clock of this machine',
  AuthorizationHeaderMalformed: 'Check AWS_REGION',
};

const noLogin =
  'set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or their _FILE; or give this machine a role or a profile';

/** An error of the SDK, as far as it is read. */
interface StoreError extends Error {
  readonly code?: string;
  readonly Code?: string;
  readonly $metadata?: { readonly httpStatusCode?: number };
}

/** Returns the status of a response that is an error; undefined when there was no response. */
export function statusOf(error: unknown): number | undefined {
  return (error as StoreError).$metadata?.httpStatusCode;
}

/** Returns the code of a response that is an error, such as `NoSuchKey`. */
export function refusalCode(error: unknown): string {
  const { Code, name } = error as StoreError;

  return Code ?? name;
}

/**
 * Explains why a call of the store failed. The text of the store can name keys of the operator,
 * so only its code is printed.
 */
export function explainStoreError(description: string, call: string, error: unknown): Error {
  if (error instanceof OperatorError) return error;
  const { name, code } = error as StoreError;
  const status = statusOf(error);

  if (/^(CredentialsProviderError|TokenProviderError)$/.test(name)) {
    return new OperatorError(`${description} cannot be used without a login: ${noLogin}`, {
      cause: error,
    });
  }
  if (status !== undefined && status >= 300) {
    const refusal = refusalCode(error);
    return new OperatorError(
      `${description} refused a request: ${call}: ${status} ${refusal}. ${remedies[refusal] ?? 'Try it again'}`,
      { cause: error },
    );
  }
  if (status !== undefined) {
    return new OperatorError(
      `${description} sent what is no response of S3: ${call} (${name}). Check that AWS_ENDPOINT_URL is a store of S3`,
      { cause: error },
    );
  }
  if (code !== undefined) {
    return new OperatorError(
      `${description} cannot be reached (${code}): ${call}. Check BACKUP_TARGET and AWS_ENDPOINT_URL`,
      { cause: error },
    );
  }

  return error as Error;
}
