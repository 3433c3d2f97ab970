import { expect } from 'chai';
import { type SentMessage, SmtpTransport } from '../../../src/accounts/mails/mail-transport.ts';
import { type MailServer, startMailServer } from '../../support/mail-server.ts';
import { use } from '../../support/use.ts';

describe('connections to mail servers', () => {
  const server: MailServer = use(startMailServer); // without STARTTLS

  const message = {
    from: { name: 'Acme', address: 'no-reply@erp.example' },
    to: 'nora@acme.test',
    subject: 'Reset',
    text: 'link',
    html: '<p>link</p>',
  };
  /** Names the loopback in a way that counts as another machine. */
  const elsewhere = (url: string): string => url.replace('127.0.0.1', '127.1');

  async function send(
    url: string,
    sent: SentMessage,
    publicUrl = 'http://localhost:3000',
  ): Promise<void> {
    const transport = new SmtpTransport(url, publicUrl);
    try {
      await transport.send(sent, () => {}, new AbortController().signal);
    } finally {
      transport.close();
    }
  }

  it('a mail server on another machine that does not offer TLS gets no password and no mail', async () => {
    const url = elsewhere(server.url).replace('//', '//user:secret-word@');

    const error: Error = await send(url, message).then(
      () => expect.fail('the mail was sent'),
      reason => reason,
    );

    expect(error.message)
      .to.match(/STARTTLS|TLS/)
      .and.not.include('secret-word');
    expect(server.messages).to.deep.equal([]);
  });

  it('mails go without TLS to a server on this machine, or where the URL says so, and are marked as sent by a program', async () => {
    await send(server.url, message);
    await send(`${elsewhere(server.url)}?ignoreTLS=true`, message);

    expect(server.messages).to.have.length(2);
    for (const { content } of server.messages) {
      expect(content).to.match(/^Auto-Submitted: auto-generated\r?$/m);
    }
  });

  it('the service names itself by the host of PUBLIC_URL, and by an address literal where that is an address', async () => {
    for (const [publicUrl, hello] of [
      ['https://api.example.com/office', 'api.example.com'],
      ['https://192.0.2.7', '[192.0.2.7]'],
      ['https://[2001:db8::7]:8443', '[IPv6:2001:db8::7]'],
    ] as const) {
      await send(server.url, message, publicUrl);
      // The server of the test has the greeting in lower case.
      expect(server.messages.at(-1)?.hello).to.equal(hello.toLowerCase());
    }
  });

  it('an address with letters beyond ASCII before the @ is refused where the mail server lacks SMTPUTF8', async () => {
    const plain = await startMailServer({ hideSMTPUTF8: true });
    const received = server.messages.length;
    try {
      const utf8 = { ...message, to: 'ñora@acme.test' };

      await send(server.url, utf8);
      const error = await send(plain.url, utf8).then(
        () => expect.fail('the mail was sent'),
        reason => reason,
      );
      await send(plain.url, { ...message, to: 'nora@ñandu.test' });

      expect(server.messages.slice(received).map(({ to }) => to)).to.deep.equal([
        ['ñora@acme.test'],
      ]);
      expect(error.code).to.equal('EUTF8');
      expect(plain.messages).to.have.length(1);
      expect(plain.messages[0]?.content).to.match(/^To: nora@xn--andu-fqa\.test\r$/m);
    } finally {
      await plain.close();
    }
  });
});
