import { once } from 'node:events';
import { createServer } from 'node:net';
import { expect } from 'chai';
import { describeMailFailure } from '../../../src/accounts/mails/mail-failure.ts';
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
    const received = server.messages.length;

    const error: Error = await send(url, message).then(
      () => expect.fail('the mail was sent'),
      reason => reason,
    );

    expect(error.message)
      .to.match(/STARTTLS|TLS/)
      .and.not.include('secret-word');
    expect(server.messages).to.have.length(received);
  });

  it('the log of a mail server that repeats the login has no password, in whatever form it was sent', async () => {
    const password = 'secret-word %/+';
    const forms = [password, btoa(password), btoa(`\0user\0${password}`)];
    forms.push(encodeURIComponent(password));

    for (const ways of ['PLAIN', 'LOGIN']) {
      const echoing = createServer(socket => {
        socket.on('error', () => {}).write('220 mail\r\n');
        socket.on('data', data => {
          const line = String(data).trim();
          if (/^EHLO/i.test(line)) socket.write(`250-mail\r\n250 AUTH ${ways}\r\n`);
          else if (/^AUTH LOGIN$/.test(line)) socket.write('334 VXNlcm5hbWU6\r\n');
          else if (line === btoa('user')) socket.write('334 UGFzc3dvcmQ6\r\n');
          else socket.write(`500 5.5.1 Command unrecognized: "${line}" ${forms.join(' ')}\r\n`);
        });
      });
      echoing.listen(0, '127.0.0.1');
      await once(echoing, 'listening');
      const { port } = echoing.address() as { port: number };
      const url = `smtp://user:${encodeURIComponent(password)}@127.0.0.1:${port}`;

      const error = await send(url, message).catch((cause: Error) => cause);
      const { answer } = describeMailFailure(error, message.to);
      echoing.close();

      expect(answer.message, ways).to.include('Command unrecognized');
      for (const form of forms) expect(JSON.stringify(answer), ways).not.to.include(form);
    }
  });

  it('a server that does not relay for the service refuses it for now, and an unknown address for good', async () => {
    for (const [code, text, isFinal] of [
      [554, '5.7.1 Relay access denied', false],
      [550, '5.7.26 This mail has been blocked because the sender is unauthenticated', false],
      [550, '5.1.1 no such user', true],
      [553, 'sorry, no mailbox here by that name', true],
    ] as const) {
      server.refuse('kim@acme.test', { code, text, at: 'RCPT' });

      const error = await send(server.url, { ...message, to: 'kim@acme.test' }).catch(
        (cause: Error) => cause,
      );
      const failure = describeMailFailure(error, 'kim@acme.test');

      expect(failure.isFinal, text).to.equal(isFinal);
      expect(failure.reason, text).to.include(
        isFinal ? 'refuses the address' : 'refuses mails of this service at the moment',
      );
    }
  });

  it('mails go without TLS to a server on this machine, or where the URL says so, and are marked as sent by a program', async () => {
    const received = server.messages.length;

    await send(server.url, message);
    await send(`${elsewhere(server.url)}?ignoreTLS=true`, message);

    const messages = server.messages.slice(received);
    expect(messages).to.have.length(2);
    for (const { content } of messages) {
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
