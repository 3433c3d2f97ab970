import { withoutAddresses, withoutUrls } from '../../lib/log/describe-error.ts';

/** The failure of an attempt, as the mail server or the network has reported it. */
export interface MailFailure {
  /**
   * The reason, for the people who manage the users of a tenant: without an address, and
   * without names of the service's network.
   */
  readonly reason: string;
  /** True when another attempt would get the same answer. */
  readonly isFinal: boolean;
  /** True when the mail server asks for patience, or does not work. */
  readonly isOverloaded: boolean;
  /** The failure, for the log. */
  readonly answer: MailAnswer;
}

/** A failed attempt as the log has it, without an address. */
interface MailAnswer {
  /** The code of nodemailer or Node, such as `EENVELOPE`. */
  readonly code: string | undefined;
  /** The code of the network or TLS, such as `CERT_HAS_EXPIRED`. */
  readonly cause: string | undefined;
  /** The command that the server answered, such as `RCPT TO`. */
  readonly command: string | undefined;
  readonly responseCode: number | undefined;
  /** The enhanced status code (RFC 3463), such as `5.1.1`. */
  readonly enhancedCode: string | undefined;
  readonly message: string;
}

/** The properties of errors of nodemailer. */
interface TransportError extends Error {
  readonly code?: string;
  readonly originalCode?: string;
  readonly command?: string;
  readonly response?: string;
  readonly responseCode?: number;
}

/**
 * Describes why an attempt failed.
 * @param address of the recipient: neither it nor the part before its `@` is in the description
 */
export function describeMailFailure(error: unknown, address: string): MailFailure {
  const {
    message,
    code,
    originalCode,
    command,
    response = '',
    responseCode,
  } = asTransportError(error);
  const [, enhancedCode] = /^\d{3}[ -](\d\.\d{1,3}\.\d{1,3})\b/.exec(response) ?? [];
  const isPermanent = responseCode !== undefined && responseCode >= 500 && responseCode !== 503;
  // 5.7 is about who sends: a relay that does not know this service, a missing signature.
  const isOfSender = enhancedCode?.startsWith('5.7.') ?? false;
  const isOfMail = (command === 'RCPT TO' && !isOfSender) || command === 'DATA';

  return {
    reason: reasonOf({ code, command, responseCode, enhancedCode }, isOfMail),
    // A refused sender or login is a fault of the settings, which an operator may mend
    // meanwhile.
    isFinal: code === 'EUTF8' || (isPermanent && isOfMail),
    isOverloaded: responseCode === undefined ? code !== 'EUTF8' : !isPermanent,
    answer: {
      code,
      cause: originalCode,
      command: command?.replace(/^AUTH .*/, 'AUTH'),
      responseCode,
      enhancedCode,
      message: withoutAddress(withoutUrls(message), address),
    },
  };
}

function asTransportError(error: unknown): TransportError {
  return error instanceof Error ? error : new Error('no error was thrown');
}

function reasonOf(
  {
    code,
    command,
    responseCode,
    enhancedCode,
  }: Pick<MailAnswer, 'code' | 'command' | 'responseCode' | 'enhancedCode'>,
  isOfMail: boolean,
): string {
  if (code === 'EUTF8') return 'the mail server takes no letters like these before the @';
  if (responseCode === undefined) return 'the mail server cannot be reached';

  const codes = [responseCode, enhancedCode].filter(Boolean).join(' ');
  const ofMail = command === 'DATA' ? 'the mail' : 'the address';
  const what = isOfMail ? ofMail : 'mails of this service at the moment';
  return responseCode >= 500
    ? `the mail server refuses ${what} (${codes})`
    : `the mail server asks for patience (${codes})`;
}

/** The part before the `@` of the recipient is removed, too: some servers repeat it alone. */
function withoutAddress(text: string, address: string): string {
  const local = address.slice(0, address.lastIndexOf('@'));
  const shown = withoutAddresses(text);
  return local.length < 2
    ? shown
    : shown.replace(
        new RegExp(`(?<!\\w)${local.replace(/[^\w\s]/g, '\\$&')}(?!\\w)`, 'gi'),
        '(address)',
      );
}
