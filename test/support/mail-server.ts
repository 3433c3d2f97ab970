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
  /** Refuses messages to this address from now on. */
  refuse(address: string): void;
  /** Holds messages to this address back from now on: they have arrived, and are accepted when `release` is called. */
  hold(address: string): { release(): void };
  /** The number of messages that were refused. */
  readonly refused: number;
  close(): Promise<void>;
}

/** Starts an SMTP server that accepts every message, except those that a test lets it refuse. */
export async function startMailServer(): Promise<MailServer> {
  const messages: ReceivedMail[] = [];
  const refusedAddresses = new Set<string>();
  const gates = new Map<string, Promise<void>>();
  let refused = 0;
  const server = new SMTPServer({
    disabledCommands: ['AUTH', 'STARTTLS'],
    disableReverseLookup: true,
    onData: (stream, session, done) => {
      const { mailFrom, rcptTo } = session.envelope;
      text(stream).then(content => {
        const to = rcptTo.map(({ address }) => address);
        if (to.some(address => refusedAddresses.has(address))) {
          refused++;
          return done(new Error('refused by the test'));
        }
        messages.push({ to, from: mailFrom ? mailFrom.address : '', content });
        const gate = gates.get(to[0] ?? '');
        if (!gate) return done();
        return gate.then(() => done());
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
    refuse: address => void refusedAddresses.add(address),
    hold: address => {
      const { promise: opened, resolve } = Promise.withResolvers<void>();
      gates.set(address, opened);
      return {
        release: () => {
          gates.delete(address);
          resolve();
        },
      };
    },
    get refused() {
      return refused;
    },
    close: () => new Promise(resolve => server.close(resolve)),
  };
}

/** Returns the token of the link in a message. */
export function tokenIn(content: string | undefined): string | undefined {
  return /token=([\w-]{43})\b/.exec(readable(content))?.[1];
}

/** Returns the address that the text of a message links to. */
export function linkIn(content: string | undefined): string | undefined {
  return /^https?:\S+token=\S+$/m.exec(readable(content))?.[0];
}

/** A message with its parts decoded from quoted-printable (RFC 2045 §6.7), as far as they are ASCII. */
export function readable(content = ''): string {
  return content
    .replaceAll('\r\n', '\n')
    .replaceAll('=\n', '')
    .replaceAll(/=([0-7][0-9A-F])/g, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16)));
}
