import type { Config } from './config.ts';

/**
 * Returns a sentence for each setting because of which mails of the service would not work for
 * their receivers.
 */
export function mailWarnings({ smtpUrl, mailFrom, publicUrl, appUrl }: Config): string[] {
  if (!smtpUrl) return [];
  const { searchParams } = new URL(smtpUrl);
  const isClear =
    searchParams.get('ignoreTLS') === 'true' || searchParams.get('requireTLS') === 'false';

  return [
    /@localhost>?$/.test(mailFrom) &&
      'SMTP_URL is set and MAIL_FROM is not: mails come from localhost. Set MAIL_FROM.',
    !appUrl &&
      isThisMachine(publicUrl) &&
      'SMTP_URL is set and PUBLIC_URL is not: links in mails lead to localhost. Set PUBLIC_URL.',
    isClear &&
      'SMTP_URL allows connections without TLS: its password and the links in mails can be read on the way.',
  ].filter(warning => warning !== false);
}

function isThisMachine(url: string): boolean {
  return new URL(url).hostname === 'localhost';
}
