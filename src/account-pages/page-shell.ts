import { type Html, html } from '../docs/html.ts';

export interface AccountPage {
  readonly title: string;
  /** The name of the tenant; undefined on pages that everybody can open. */
  readonly tenantName?: string | undefined;
  readonly body: Html;
  /** Whether the form above was refused: a screen reader hears the title first. */
  readonly isRefused?: boolean;
}

/**
 * A complete HTML page in the style of the documentation, without a script. All addresses are relative, so that the page
 * works below the path of a proxy.
 */
export function accountPage({ title, tenantName, body, isRefused = false }: AccountPage): string {
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>${isRefused ? 'Error: ' : ''}${title} – ${tenantName ?? 'Sales back office'}</title>
<link rel="stylesheet" href="css/base.css">
<link rel="stylesheet" href="css/account.css">
<link rel="icon" href="favicon.ico">
</head>
<body>
<header><div class="bar"><strong>${tenantName ?? 'Sales back office'}</strong></div></header>
<main><h1>${title}</h1>
${body}</main>
</body>
</html>
`.html;
}
