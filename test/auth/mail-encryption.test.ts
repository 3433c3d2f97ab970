import { expect } from 'chai';
import { smtpMail } from '../../src/auth/mail.ts';
import { type MailServer, startMailServer } from '../support/mail-server.ts';
import { use } from '../support/use.ts';

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

  it('a mail server on another machine that does not offer TLS gets no password and no mail', async () => {
    const url = elsewhere(server.url).replace('//', '//user:secret-word@');

    const error: Error = await smtpMail(url)(message).then(
      () => expect.fail('the mail was sent'),
      reason => reason,
    );

    expect(error.message)
      .to.match(/STARTTLS|TLS/)
      .and.not.include('secret-word');
    expect(server.messages).to.deep.equal([]);
  });

  it('on this machine, and where the URL says so, mails go without TLS, and say that a program has sent them', async () => {
    await smtpMail(server.url)(message);
    await smtpMail(`${elsewhere(server.url)}?ignoreTLS=true`)(message);

    expect(server.messages).to.have.length(2);
    for (const { content } of server.messages) expect(content).to.match(/^Auto-Submitted: auto-generated\r?$/m);
  });
});
