import { randomUUID } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createTransport } from 'nodemailer';
import type { Logger } from 'pino';
import type { Config } from '../config/config.ts';
import type { TenantRecord } from '../control/records.ts';
import { isLocal } from '../postgres/unverified-host.ts';

export interface Message {
  readonly to: string;
  readonly subject: string;
  readonly text: string;
  /** The same as HTML. */
  readonly html: string;
}

interface SentMessage extends Message {
  readonly from: { readonly name: string; readonly address: string };
}

type SendMail = (message: SentMessage) => Promise<void>;

/** Sends a message of a tenant, unless the tenant is isolated. @throws when the mail server does not accept it */
export type SendTenantMail = (
  tenant: Pick<TenantRecord, 'guid' | 'name' | 'isIsolated'>,
  message: Message,
) => Promise<void>;

const timeoutMs = 10_000;

/**
 * Sends mails in the name of their tenant. Isolated tenants, such as copies of others, send none. The log has neither
 * address nor text. Counts what was sent since the start, and what was not accepted.
 */
export function createTenantMails({ smtpUrl, mailFrom, dataDir }: Config, log: Logger) {
  const sendMail = smtpUrl ? smtpMail(smtpUrl) : fileMail(join(dataDir, 'mail'), log);
  // Of a name and an address in angle brackets, the name of the tenant replaces the name.
  const address = /<([^<>]+)>\s*$/.exec(mailFrom)?.[1] ?? mailFrom.trim();
  const counts = { sent: 0, failed: 0 };
  const send: SendTenantMail = async ({ guid, name, isIsolated }, message) => {
    if (isIsolated) {
      log.info({ event: 'mail_withheld', tenant: guid }, 'a mail was not sent, because the tenant is isolated');
      return;
    }
    try {
      await sendMail({ ...message, from: { name, address } });
      counts.sent++;
    } catch (error) {
      counts.failed++;
      throw error;
    }
  };
  return { send, counts };
}

/** Sends mails by the mail server of a URL. */
export function smtpMail(url: string): SendMail {
  const timeouts = { connectionTimeout: timeoutMs, greetingTimeout: timeoutMs, socketTimeout: timeoutMs };
  const transport = createTransport({ url, requireTLS: needsTls(url), ...timeouts });
  return async message => {
    await transport.sendMail(addressed(message));
  };
}

/**
 * True when the connection has to be encrypted: it carries the password of the mail server, and
 * links that log in. Not on this machine, and not where the URL says so.
 */
function needsTls(url: string): boolean {
  const { hostname, searchParams } = new URL(url);
  const saysOtherwise = searchParams.get('ignoreTLS') === 'true' || searchParams.get('requireTLS') === 'false';
  return !saysOtherwise && !isLocal(hostname);
}

/** Writes `.eml` files that a mail program can open. */
function fileMail(folder: string, log: Logger): SendMail {
  const transport = createTransport({ streamTransport: true, buffer: true });
  return async message => {
    const { message: content } = await transport.sendMail(addressed(message));
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const file = join(folder, `${new Date().toISOString().replaceAll(':', '-')}-${randomUUID().slice(0, 8)}.eml`);
    await writeFile(file, content as Buffer, { mode: 0o600 });
    log.info({ event: 'mail_written', file }, 'a mail was written to a file, because SMTP_URL is not set');
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
