import { type Html, html } from '../../lib/html/html.ts';
import type { Message } from './mail-transport.ts';

interface AccountMail {
  readonly to: string;
  /** The subject of the mail, which is also the heading of the HTML part. */
  readonly subject: string;
  readonly paragraphs: readonly string[];
  /** The link; undefined for a mail that only informs. */
  readonly link?: { readonly text: string; readonly address: string };
  /** Further facts for the reader, below the link. */
  readonly notes: readonly string[];
}

const fonts = 'font-family:system-ui,-apple-system,Segoe UI,Roboto,Arial,sans-serif';
const button =
  'display:inline-block;padding:12px 22px;border-radius:6px;background:#0b5cad;color:#ffffff;' +
  'font-weight:600;text-decoration:none';

/**
 * Composes a mail with at most one link, as text and as HTML without images, scripts or
 * anything else that is loaded.
 */
export function accountMail({ to, subject, paragraphs, link, notes }: AccountMail): Message {
  const text = [...paragraphs, ...(link ? [`${link.text}:\n${link.address}`] : []), ...notes];
  return {
    to,
    subject,
    text: `${text.join('\n\n')}\n`,
    html: htmlPart({ subject, paragraphs, notes, ...(link && { link }) }).html,
  };
}

function htmlPart({ subject, paragraphs, link, notes }: Omit<AccountMail, 'to'>): Html {
  return html`<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>${subject}</title></head>
<body style="margin:0;padding:24px;background:#f4f7f9;color:#1d2733;font-size:16px;line-height:1.5;${fonts}">
<div role="main" style="max-width:32rem;margin:0 auto;padding:28px;background:#ffffff;border:1px solid #d9e0e7;border-radius:8px">
<h1 style="margin:0 0 16px;font-size:22px;line-height:1.3">${subject}</h1>
${paragraphs.map(paragraph => html`<p style="margin:0 0 16px">${withBreaks(paragraph)}</p>\n`)}
${link ? html`<p style="margin:24px 0"><a href="${link.address}" style="${button}">${link.text}</a></p>` : ''}
${notes.map(note => html`<p style="margin:0 0 12px;color:#566473;font-size:14px">${withBreaks(note)}</p>\n`)}
${
  link
    ? html`<p style="margin:16px 0 0;color:#566473;font-size:13px;overflow-wrap:anywhere">If the button does not work, open this
address: ${link.address}</p>`
    : ''
}
</div>
</body>
</html>
`;
}

function withBreaks(text: string): Html[] {
  return text.split('\n').map((line, index) => (index === 0 ? html`${line}` : html`<br>${line}`));
}
