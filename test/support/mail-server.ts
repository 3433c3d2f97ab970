import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { SMTPServer } from 'smtp-server';
import { eventually } from './eventually.ts';

/** A message as the mail server received it. */
interface ReceivedMail {
  /** Recipients of the envelope, which decide where the message goes. */
  to: string[];
  from: string;
  /** Headers and text, unchanged. */
  content: string;
}

export interface MailServer {
  readonly url: string;
  /** Every message, in order of arrival. */
  readonly messages: ReceivedMail[];
  /** Returns the messages whose only recipient is this address. */
  messagesTo(address: string): ReceivedMail[];
  /** Waits for message number `count` (from 1) to this address, and returns its token. */
  waitForToken(address: string, count?: number): Promise<string>;
  close(): Promise<void>;
}

/** Starts an SMTP server that accepts every message. */
export async function startMailServer(): Promise<MailServer> {
  const messages: ReceivedMail[] = [];
  const server = new SMTPServer({
    disabledCommands: ['AUTH', 'STARTTLS'],
    disableReverseLookup: true,
    onData: (stream, session, done) => {
      const { mailFrom, rcptTo } = session.envelope;
      text(stream).then(content => {
        messages.push({ to: rcptTo.map(({ address }) => address), from: mailFrom ? mailFrom.address : '', content });
        done();
      }, done);
    },
  });
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.server.address() as AddressInfo;
  const messagesTo = (address: string) => messages.filter(({ to }) => to.length === 1 && to[0] === address);
  return {
    url: `smtp://127.0.0.1:${port}`,
    messages,
    messagesTo,
    waitForToken: (address, count = 1) => eventually(() => tokenIn(messagesTo(address)[count - 1]?.content)),
    close: () => new Promise(resolve => server.close(resolve)),
  };
}

/** Returns the token in the text of a message: 43 base64url characters alone on a line. */
export function tokenIn(content: string | undefined): string | undefined {
  return content && /^[\w-]{43}(?=\r?$)/m.exec(content)?.[0];
}
