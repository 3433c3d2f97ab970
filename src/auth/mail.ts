import { randomUUID } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createTransport } from 'nodemailer';
import type { Logger } from 'pino';
import type { TenantRecord } from '../control/records.ts';

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

/** Sends a message. @throws when the mail server does not accept it */
export type SendMail = (message: SentMessage) => Promise<void>;

interface MailOptions {
  /** Undefined: messages are written to `folder` instead. */
  smtpUrl: string | undefined;
  folder: string;
  log: Logger;
}

const timeoutMs = 10_000;

/**
 * Sends mail over SMTP or, without a server, writes `.eml` files that a mail program can open. Logs no message text.
 */
export function createMail({ smtpUrl, folder, log }: MailOptions): SendMail {
  if (smtpUrl) {
    const timeouts = { connectionTimeout: timeoutMs, greetingTimeout: timeoutMs, socketTimeout: timeoutMs };
    const transport = createTransport({ url: smtpUrl, ...timeouts });
    return async message => {
      await transport.sendMail(addressed(message));
    };
  }
  const transport = createTransport({ streamTransport: true, buffer: true });
  return async message => {
    const { message: content } = await transport.sendMail(addressed(message));
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const file = join(folder, `${new Date().toISOString().replaceAll(':', '-')}-${randomUUID().slice(0, 8)}.eml`);
    await writeFile(file, content as Buffer, { mode: 0o600 });
    log.info({ event: 'mail_written', file }, 'a mail was written to a file, because SMTP_URL is not set');
  };
}

/** Passes the address as an object: parsed as a header, `(a)b@c.test` would be a comment and the address `b@c.test`. */
function addressed(message: SentMessage) {
  return { ...message, to: { name: '', address: message.to } };
}

/** Sends a message of a tenant, unless the tenant is isolated. @throws when the mail server does not accept it */
export type SendTenantMail = (
  tenant: Pick<TenantRecord, 'guid' | 'name' | 'isIsolated'>,
  message: Message,
) => Promise<void>;

/**
 * Sends mails in the name of their tenant. Isolated tenants, such as copies of others, send none. The log has neither
 * address nor text.
 * @param sender an address, or a name and an address in angle brackets; the name of the tenant replaces that name
 */
export function tenantMails(send: SendMail, sender: string, log: Logger): SendTenantMail {
  const address = /<([^<>]+)>\s*$/.exec(sender)?.[1] ?? sender.trim();
  return async ({ guid, name, isIsolated }, message) => {
    if (!isIsolated) return send({ ...message, from: { name, address } });
    log.info({ event: 'mail_withheld', tenant: guid }, 'a mail was not sent, because the tenant is isolated');
  };
}

/** Counts mails and failures. @returns the same function, and the counts since the start */
export function countMails(send: SendMail): { send: SendMail; counts: { sent: number; failed: number } } {
  const counts = { sent: 0, failed: 0 };
  const counting: SendMail = async message => {
    try {
      await send(message);
      counts.sent++;
    } catch (error) {
      counts.failed++;
      throw error;
    }
  };
  return { send: counting, counts };
}
