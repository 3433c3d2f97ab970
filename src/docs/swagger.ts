import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { html } from './html.ts';
import { header, type Site } from './page.ts';

/** Reads a file of Swagger UI from the package `swagger-ui-dist`. */
export function swaggerFile(name: string): Promise<string> {
  const require = createRequire(import.meta.url);
  return readFile(require.resolve(`swagger-ui-dist/${name}`), 'utf8');
}

/** The page of the explorer (Swagger UI). */
export function swaggerPage(site: Site): string {
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Try it out – Sales back office</title>
<link rel="icon" href="/favicon.ico">
<link rel="stylesheet" href="/swagger/swagger-ui.css">
<link rel="stylesheet" href="/css/base.css">
<link rel="stylesheet" href="/css/explorer.css">
<script src="/docs/search.js" type="module"></script>
</head>
<body>
<noscript>The explorer needs JavaScript. The <a href="/docs/reference">reference</a> works without it.</noscript>
${header('/swagger', site)}
<main id="explorer"></main>
<script src="/swagger/swagger-ui-bundle.js"></script>
<script src="/swagger/start.js" type="module"></script>
</body>
</html>
`.html;
}
