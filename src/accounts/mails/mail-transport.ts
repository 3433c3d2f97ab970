import { randomUUID } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { isIP } from 'node:net';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import type { Transporter } from 'nodemailer';
import type { Logger } from 'pino';
import type { Config } from '../../lib/config/config.ts';
import { asError } from '../../lib/narrow.ts';
import { isLocal } from '../../lib/postgres/unverified-host.ts';

export interface Message {
  readonly to: string;
  readonly subject: string;
  readonly text: string;
  /** The same as HTML. */
  readonly html: string;
}

export interface SentMessage extends Message {
  readonly from: { readonly name: string; readonly address: string };
}

/** Hands mails to a mail server, or writes them to files. */
export interface MailTransport {
  /**
   * Sends a mail.
   * @param onHandedOver called when the whole text was handed to the mail server, which may
   *   accept it from then on
   * @param signal ends the attempt
   * @throws {Error} of nodemailer, when the mail was not accepted or nobody knows
   */
  send(message: SentMessage, onHandedOver: () => void, signal: AbortSignal): Promise<void>;
  /** Closes all connections at once. */
  close(): void;
}

/** Connections to the mail server that stay open: many servers allow a client no more. */
export const maxConnections = 3;
/** The time until a mail server has answered the connection, and TLS is set up. */
const connectMs = 60_000;
/**
 * The time until the server has accepted the login, the sender and the recipient, which some
 * servers look up slowly.
 */
const envelopeMs = 60_000;
/**
 * The time from the end of the text until the server accepts the mail, which it scans meanwhile
 * (RFC 5321 §4.5.3.2.6).
 */
const acceptMs = 300_000;

/**
 * Loads the package when it is needed: its 39 modules are not part of a start without a mail
 * server.
 */
function nodemailer(): typeof import('nodemailer') {
  return createRequire(import.meta.url)('nodemailer') as typeof import('nodemailer');
}

/** Opens the mail server of the settings; without one, mails are files. */
export function openMailTransport(
  { smtpUrl, dataDir, publicUrl }: Pick<Config, 'smtpUrl' | 'dataDir' | 'publicUrl'>,
  log: Logger,
): MailTransport {
  return smtpUrl
    ? new SmtpTransport(smtpUrl, publicUrl)
    : fileTransport(join(dataDir, 'mail'), log);
}

/**
 * The mail server has no SMTPUTF8 (RFC 6531), which the address needs: it has letters beyond
 * ASCII before the `@`.
 */
class UnsupportedAddressError extends Error {
  readonly code = 'EUTF8';
}

/** Sends mails by the mail server of a URL, over a few connections that stay. */
export class SmtpTransport implements MailTransport {
  readonly #transport: Transporter;
  readonly #ehlo = new EhloReplies();
  readonly #secrets: readonly string[];

  /** @param publicUrl its host is the name in EHLO: mail servers refuse `[127.0.0.1]` */
  constructor(url: string, publicUrl: string) {
    const options = {
      url,
      pool: true as const,
      maxConnections,
      maxRequeues: 1, // a connection that the server had closed while it was idle
      requireTLS: needsTls(url),
      name: helloName(publicUrl),
      connectionTimeout: connectMs,
      greetingTimeout: connectMs,
      socketTimeout: acceptMs,
      socketCloseTimeout: 0,
      disableFileAccess: true,
      disableUrlAccess: true,
      transactionLog: true,
      logger: this.#ehlo.logger,
    };

    this.#secrets = loginTexts(url);
    this.#transport = nodemailer().createTransport(options);
    this.#transport.use('stream', (mail, done) => {
      const { onHandedOver } = mail.data as { onHandedOver?: () => void };
      mail.message.transform(() => new PassThrough().once('end', () => onHandedOver?.()));
      done();
    });
  }

  async send(message: SentMessage, onHandedOver: () => void, signal: AbortSignal): Promise<void> {
    const tooSlow = new AbortController();
    const limit = (ms: number) => setTimeout(() => tooSlow.abort(), ms).unref();
    let timer = limit(connectMs + envelopeMs);

    try {
      if (needsUtf8(message.to)) await this.#requireUtf8();
      await this.#transport.sendMail({
        ...addressed(message),
        signal: AbortSignal.any([signal, tooSlow.signal]),
        onHandedOver: () => {
          clearTimeout(timer);
          timer = limit(acceptMs);
          onHandedOver();
        },
      } as Parameters<Transporter['sendMail']>[0]);
    } catch (error) {
      if (tooSlow.signal.aborted) {
        throw Object.assign(new Error('no answer in time'), { code: 'ETIMEDOUT' });
      }
      throw this.#withoutLogin(asError(error));
    } finally {
      clearTimeout(timer);
    }
  }

  /** Some mail servers repeat a command that they refuse; it may have the password in it. */
  #withoutLogin(error: Error): Error {
    for (const secret of this.#secrets) {
      error.message = error.message.replaceAll(secret, '(login)');
    }
    return error;
  }

  close(): void {
    (this.#transport.close as (options: { force: boolean }) => void)({ force: true });
  }

  /**
   * Requires that the mail server offers SMTPUTF8. The first call asks the server, on a
   * connection of its own.
   */
  async #requireUtf8(): Promise<void> {
    if (this.#ehlo.hasUtf8 === undefined) await this.#transport.verify();
    if (this.#ehlo.hasUtf8 !== true) {
      throw new UnsupportedAddressError('the mail server does not offer SMTPUTF8');
    }
  }
}

interface LogEntry {
  readonly sid?: string;
  readonly tnx?: string;
}

/**
 * Reads the offers of the mail server in the log of nodemailer, which is written nowhere else.
 */
class EhloReplies {
  /** Connections whose last command was EHLO. */
  readonly #greeting = new Set<string | undefined>();
  /** True if the server offers SMTPUTF8; undefined until it has answered EHLO. */
  hasUtf8: boolean | undefined;

  readonly logger = {
    level: () => {},
    trace: () => {},
    debug: (entry: LogEntry, text: unknown) => this.#read(entry, String(text)),
    info: () => {},
    warn: () => {},
    error: () => {},
    fatal: () => {},
  };

  #read({ sid, tnx }: LogEntry, text: string): void {
    if (tnx === 'client') {
      if (/^EHLO\b/i.test(text)) this.#greeting.add(sid);
      else this.#greeting.delete(sid);
    } else if (tnx === 'server' && this.#greeting.delete(sid) && text.startsWith('250')) {
      this.hasUtf8 = /^250[ -]SMTPUTF8\b/im.test(text);
    }
  }
}

/** Domains are sent as Punycode; the part before the `@` has no other form. */
function needsUtf8(address: string): boolean {
  return /[^\x20-\x7e]/.test(address.slice(0, address.lastIndexOf('@')));
}

/** Returns the forms in which the password of a URL is sent to a mail server, longest first. */
function loginTexts(url: string): string[] {
  const { username, password } = new URL(url);
  if (!password) return [];

  const [user, secret] = [username, password].map(decodeURIComponent);
  const encoded = [`\0${user}\0${secret}`, secret].map(text =>
    Buffer.from(text ?? '').toString('base64'),
  );
  return [...encoded, secret ?? '', password];
}

/**
 * True when the connection has to be encrypted: it carries the password of the mail server, and
 * links that log in. Not on this machine, and not where the URL says so.
 */
function needsTls(url: string): boolean {
  const { hostname, searchParams } = new URL(url);
  const saysOtherwise =
    searchParams.get('ignoreTLS') === 'true' || searchParams.get('requireTLS') === 'false';
  return !saysOtherwise && !isLocal(hostname);
}

/**
 * Returns the name for EHLO (RFC 5321 §4.1.3); undefined, and nodemailer chooses, for one that
 * means this machine.
 */
function helloName(publicUrl: string): string | undefined {
  const { hostname } = new URL(publicUrl);
  if (isLocal(hostname)) return undefined;

  const address = hostname.replace(/^\[|\]$/g, '');
  const kind = isIP(address);
  if (kind === 0) return hostname;
  return kind === 6 ? `[IPv6:${address}]` : `[${address}]`;
}

/** Writes `.eml` files that a mail program can open. */
function fileTransport(folder: string, log: Logger): MailTransport {
  const open = () => nodemailer().createTransport({ streamTransport: true, buffer: true });
  let transport: ReturnType<typeof open> | undefined;

  return {
    async send(message, onHandedOver) {
      transport ??= open();
      const { message: content } = await transport.sendMail(addressed(message));
      await mkdir(folder, { recursive: true, mode: 0o700 });
      const file = join(
        folder,
        `${new Date().toISOString().replaceAll(':', '-')}-${randomUUID().slice(0, 8)}.eml`,
      );
      await writeFile(file, content as Buffer, { mode: 0o600 });
      onHandedOver();
      log.info(
        { event: 'mail_written', file },
        'a mail was written to a file, because SMTP_URL is not set',
      );
    },
    close: () => {},
  };
}

/**
 * Marks the message as one of a program (RFC 3834), so that no absent reader's program answers
 * it. Passes the address as an object: parsed as a header, `(a)b@c.test` would be a comment and
 * the address `b@c.test`.
 */
function addressed(message: SentMessage) {
  return {
    ...message,
    to: { name: '', address: message.to },
    headers: { 'Auto-Submitted': 'auto-generated' },
  };
}
