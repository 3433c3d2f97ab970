import { OperatorError } from '../../../lib/log/operator-error.ts';
import type { ErrorCause } from '../../../lib/log/postgres-causes.ts';
import { FullTargetError } from './target.ts';

const loginRemedy =
  'Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or their _FILE; or give this machine a role or a profile';
const busyRemedy = 'Wait, and run it again; what it has written so far counts';

/** The status by which some stores say that they are full, whatever the code is (RFC 4918). */
const insufficientStorage = 507;
/** The codes of a store that takes no object before others are removed. */
const fullCodes = ['QuotaExceeded', 'XMinioStorageFull', 'XMinioAdminBucketQuotaExceeded'];

/**
 * The causes because of which a store refuses a request, by the codes of S3 and of stores with
 * its protocol.
 */
export const storeCauses: readonly ErrorCause[] = [
  {
    codes: ['NoSuchBucket'],
    cause: 'the bucket of BACKUP_TARGET does not exist',
    step: 'Create the bucket, or correct BACKUP_TARGET',
  },
  {
    codes: ['InvalidBucketName'],
    cause: 'no bucket can have the name in BACKUP_TARGET',
    step: 'Correct BACKUP_TARGET',
  },
  {
    codes: ['AccessDenied', 'AllAccessDisabled'],
    cause:
      'the login lacks a right in the bucket, or a lock holds the object that is to be deleted',
    step:
      'Give the login the rights to list, read, write and delete in the bucket; ' +
      'what a lock holds can be deleted when its time has ended',
  },
  {
    codes: ['ObjectLocked', 'ObjectLockedByBucketPolicy', 'InvalidObjectState', 'MethodNotAllowed'],
    cause: 'a lock holds the object, or the store does not have this request',
    step:
      'Let the time of the lock end, and run it again; without a lock, ' +
      'check that AWS_ENDPOINT_URL is a store of S3, not its website',
  },
  {
    codes: ['InvalidAccessKeyId', 'Unauthorized'],
    cause: 'the store does not know the key',
    step: 'Check AWS_ACCESS_KEY_ID',
  },
  {
    codes: ['SignatureDoesNotMatch'],
    cause: 'the secret is another one, or a proxy before the store changes requests',
    step: 'Check AWS_SECRET_ACCESS_KEY, and that nothing between changes requests',
  },
  {
    codes: ['InvalidToken'],
    cause: 'the token of the session is not one',
    step: 'Check AWS_SESSION_TOKEN',
  },
  {
    codes: ['ExpiredToken', 'TokenRefreshRequired'],
    cause: 'the token of the session has ended',
    step: 'Renew AWS_SESSION_TOKEN',
  },
  {
    codes: ['RequestTimeTooSkewed', 'RequestExpired'],
    cause: 'the clocks of machine and store differ',
    step: 'Set the clock of this machine',
  },
  {
    codes: ['AuthorizationHeaderMalformed', 'IllegalLocationConstraintException', 'InvalidRegion'],
    cause: 'the bucket is in another region',
    step: 'Check AWS_REGION',
  },
  {
    codes: ['PermanentRedirect', 'TemporaryRedirect', '301', '307'],
    cause: 'the bucket is at another address, as of another region; it gets no login',
    step: 'Set AWS_ENDPOINT_URL and AWS_REGION to those of the bucket',
  },
  {
    codes: [
      'SlowDown',
      'ServiceUnavailable',
      'InternalError',
      'RequestTimeout',
      'OperationAborted',
    ],
    cause:
      'the store is overloaded or fails, also at the last attempt: of up to five, or of one after many failures',
    step: busyRemedy,
  },
  {
    codes: [...fullCodes, 'EntityTooLarge', 'TooManyBuckets'],
    cause: 'the store has no room left, or a quota is used up',
    step: 'Enlarge the store or its quota; BACKUP_KEEP says which archives a run removes',
  },
  {
    codes: ['NotImplemented', 'InvalidRequest', 'InvalidArgument'],
    cause:
      'the store lacks a part of S3, or the bucket wants something else than what is sent; ' +
      'MinIO refuses so what a lock holds',
    step: 'Look into the log of the store, and at encryption and lock of the bucket',
  },
  {
    codes: ['ECONNRESET', 'EPIPE'],
    cause: 'the store, or a proxy before it, ends the connection',
    step: 'Try again',
  },
  {
    codes: ['CredentialsProviderError', 'TokenProviderError'],
    cause: 'there is no login',
    step: loginRemedy,
  },
  {
    codes: ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'ETIMEDOUT', 'EHOSTUNREACH', 'ENETUNREACH'],
    cause: 'the store is not reached',
    step: 'Check BACKUP_TARGET and AWS_ENDPOINT_URL, and let the network through to the store',
  },
];

const unreachedRemedy = 'Check BACKUP_TARGET and AWS_ENDPOINT_URL';
const unknownRemedy = 'Look the code up in the manual of the store, and run it again';

/** Returns the next step after a refusal with a code; undefined for an unknown one. */
export function remedyOf(code: string): string | undefined {
  return storeCauses.find(({ codes }) => codes.includes(code))?.step;
}

/** The parts of an error of the SDK that are read. */
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
    return new OperatorError(`${description} cannot be used without a login. ${loginRemedy}`, {
      cause: error,
    });
  }
  if (status !== undefined && status >= 300) {
    const refusal = refusalCode(error);
    const isFull = status === insufficientStorage || fullCodes.includes(refusal);
    const Refusal = isFull ? FullTargetError : OperatorError;
    return new Refusal(
      `${description} refused a request: ${call}: ${status} ${refusal}. ${remedyOf(refusal) ?? unknownRemedy}`,
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
      `${description} cannot be reached (${code}): ${call}. ${remedyOf(code) ?? unreachedRemedy}`,
      { cause: error },
    );
  }

  return error as Error;
}
