import { randomUUID } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createTransport } from 'nodemailer';
import type { Logger } from 'pino';

interface Message {
  to: string;
  subject: string;
  text: string;
}

/** Sends a message. @throws when the mail server does not take it */
export type SendMail = (message: Message) => Promise<void>;

interface MailOptions {
  /** Undefined: messages are written to `folder` instead. */
  smtpUrl: string | undefined;
  from: string;
  folder: string;
  log: Logger;
}

const timeoutMs = 10_000;

/** Mail over SMTP; without a server, as `.eml` files that a person can open. The log never holds a message. */
export function createMail({ smtpUrl, from, folder, log }: MailOptions): SendMail {
  if (smtpUrl) {
    const timeouts = { connectionTimeout: timeoutMs, greetingTimeout: timeoutMs, socketTimeout: timeoutMs };
    const transport = createTransport({ url: smtpUrl, ...timeouts }, { from });
    return async message => {
      await transport.sendMail(addressed(message));
    };
  }
  const transport = createTransport({ streamTransport: true, buffer: true }, { from });
  return async message => {
    const { message: content } = await transport.sendMail(addressed(message));
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const file = join(folder, `${new Date().toISOString().replaceAll(':', '-')}-${randomUUID().slice(0, 8)}.eml`);
    await writeFile(file, content as Buffer, { mode: 0o600 });
    log.info({ event: 'mail_written', file }, 'no SMTP_URL is set: a message was written to a file');
  };
}

/** To the address as it stands: read as a header, `(a)b@c.test` is a comment and somebody else's address. */
function addressed(message: Message) {
  return { ...message, to: { name: '', address: message.to } };
}

/** The text of a message: paragraphs, whose lines are best kept under 76 characters, so that they travel as they are. */
export function mailText(...paragraphs: string[]): string {
  return `${paragraphs.join('\n\n')}\n`;
}
