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
  /** The name by which the client introduced itself. */
  hello: string;
}

/** The answer of the server to a message that it does not accept. */
interface Refusal {
  readonly code: number;
  readonly text: string;
  /** To which command. Default: the text of the message. */
  readonly at?: 'RCPT' | 'DATA';
  /** The number of messages. Default: all. */
  times?: number;
}

export interface MailServer {
  readonly url: string;
  /** Every message, in order of arrival. */
  readonly messages: ReceivedMail[];
  /**
   * Returns the messages whose only recipient is this address, without those that inform a
   * person of a change of the own account: `noticesTo` returns these.
   */
  messagesTo(address: string): ReceivedMail[];
  /** Returns the texts that have informed a person of changes of the own account. */
  noticesTo(address: string): string[];
  /** Waits for message number `count` (from 1) to this address, and returns its token. */
  waitForToken(address: string, count?: number): Promise<string>;
  /** Refuses messages to this address from now on. */
  refuse(address: string, refusal?: Refusal): void;
  /** Accepts messages to this address again. */
  accept(address: string): void;
  /**
   * Holds messages to this address back from now on: they have arrived, and are accepted when
   * `release` is called.
   */
  hold(address: string): { release(): void };
  /** Returns the texts that have arrived for an address, those that were refused included. */
  textsTo(address: string): string[];
  /** The number of messages that were refused. */
  readonly refused: number;
  /** The number of connections that were opened. */
  readonly connections: number;
  close(): Promise<void>;
}

const patience: Refusal = { code: 450, text: '4.2.0 refused by the test' };

/**
 * Starts an SMTP server that accepts every message, except those that a test lets it refuse.
 */
export async function startMailServer({ hideSMTPUTF8 = false } = {}): Promise<MailServer> {
  const messages: ReceivedMail[] = [];
  const refusals = new Map<string, Refusal>();
  const texts: { to: string | undefined; content: string }[] = [];
  const gates = new Map<string, Promise<void>>();
  let refused = 0;
  let connections = 0;

  const refusalOf = (address: string, at: 'RCPT' | 'DATA'): Error | undefined => {
    const refusal = refusals.get(address);
    if (!refusal || (refusal.at ?? 'DATA') !== at) return undefined;

    refused++;
    if (refusal.times !== undefined && --refusal.times <= 0) refusals.delete(address);
    return Object.assign(new Error(refusal.text), { responseCode: refusal.code });
  };

  const server = new SMTPServer({
    disabledCommands: ['AUTH', 'STARTTLS'],
    hideSMTPUTF8,
    disableReverseLookup: true,
    closeTimeout: 100,
    onConnect: (_session, done) => {
      connections++;
      done();
    },
    onRcptTo: ({ address }, _session, done) => done(refusalOf(address, 'RCPT')),
    onData: (stream, session, done) => {
      const { mailFrom, rcptTo } = session.envelope;
      text(stream).then(content => {
        const to = rcptTo.map(({ address }) => address);
        texts.push({ to: to[0], content });
        const refusal = refusalOf(to[0] ?? '', 'DATA');
        if (refusal) return done(refusal);

        const hello = session.hostNameAppearsAs;
        messages.push({ to, from: mailFrom ? mailFrom.address : '', content, hello });
        const gate = gates.get(to[0] ?? '');
        if (!gate) return done();
        return gate.then(() => done());
      }, done);
    },
  });
  server.on('error', () => {}); // a client that ends a connection
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.server.address() as AddressInfo;

  const allTo = (address: string) =>
    messages.filter(({ to }) => to.length === 1 && to[0] === address);
  const messagesTo = (address: string) =>
    allTo(address).filter(({ content }) => !isNotice(readable(content)));
  return {
    url: `smtp://127.0.0.1:${port}`,
    messages,
    messagesTo,
    noticesTo: address =>
      allTo(address)
        .map(({ content }) => readable(content))
        .filter(isNotice),
    waitForToken: (address, count = 1) =>
      eventually(() => tokenIn(messagesTo(address)[count - 1]?.content)),
    refuse: (address, refusal = patience) => void refusals.set(address, { ...refusal }),
    accept: address => void refusals.delete(address),
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
    textsTo: address => texts.filter(({ to }) => to === address).map(({ content }) => content),
    get refused() {
      return refused;
    },
    get connections() {
      return connections;
    },
    close: () => new Promise(resolve => server.close(resolve)),
  };
}

/** True for a mail that informs a person of a change of the own account. */
function isNotice(text: string): boolean {
  return text.includes('/docs/guide/accounts#a-mail-on-your-account');
}

/** Returns the token of the link in a message. */
export function tokenIn(content: string | undefined): string | undefined {
  return /token=([\w-]{22}\.[\w-]{43})\b/.exec(readable(content))?.[1];
}

/** Returns the address that the text of a message links to. */
export function linkIn(content: string | undefined): string | undefined {
  return /^https?:\S+token=\S+$/m.exec(readable(content))?.[0];
}

/**
 * A message with its parts decoded from quoted-printable (RFC 2045 §6.7), as far as they are
 * ASCII.
 */
export function readable(content = ''): string {
  return content
    .replaceAll('\r\n', '\n')
    .replaceAll('=\n', '')
    .replaceAll(/=([0-7][0-9A-F])/g, (_, code: string) =>
      String.fromCharCode(Number.parseInt(code, 16)),
    );
}
