import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { SMTPServer } from 'smtp-server';
import { eventually } from './eventually.ts';

/** A message as a mail server took it. */
export interface Letter {
  /** Of the envelope: where it really goes. */
  to: string[];
  from: string;
  /** Headers and text, as they came. */
  content: string;
}

export interface MailServer {
  readonly url: string;
  /** Every message, in the order in which they came. */
  readonly letters: Letter[];
  /** Messages to this address, and to no other. */
  to(address: string): Letter[];
  /** The token of the message that makes it so many to this address, when it has come. */
  token(address: string, count?: number): Promise<string>;
  close(): Promise<void>;
}

/** A real SMTP server, which takes everything. */
export async function startMailServer(): Promise<MailServer> {
  const letters: Letter[] = [];
  const server = new SMTPServer({
    disabledCommands: ['AUTH', 'STARTTLS'],
    disableReverseLookup: true,
    onData: (stream, session, done) => {
      const { mailFrom, rcptTo } = session.envelope;
      text(stream).then(content => {
        letters.push({ to: rcptTo.map(({ address }) => address), from: mailFrom ? mailFrom.address : '', content });
        done();
      }, done);
    },
  });
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.server.address() as AddressInfo;
  const to = (address: string) => letters.filter(letter => letter.to.length === 1 && letter.to[0] === address);
  return {
    url: `smtp://127.0.0.1:${port}`,
    letters,
    to,
    token: (address, count = 1) => eventually(() => tokenIn(to(address)[count - 1]?.content)),
    close: () => new Promise(resolve => server.close(resolve)),
  };
}

/** The token of a message, which stands alone on its line. */
export function tokenIn(content: string | undefined): string | undefined {
  return content && /^[\w-]{43}(?=\r?$)/m.exec(content)?.[0];
}
