import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { html } from './html.ts';
import { header } from './page.ts';

/** Reads a file of Swagger UI from the package `swagger-ui-dist`. */
export function swaggerFile(name: string): Promise<string> {
  const require = createRequire(import.meta.url);
  return readFile(require.resolve(`swagger-ui-dist/${name}`), 'utf8');
}

/** The page of the explorer (Swagger UI). */
export const swaggerPage = html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Try it out – Sales back office</title>
<link rel="icon" href="/favicon.ico">
<link rel="stylesheet" href="/swagger/swagger-ui.css">
<link rel="stylesheet" href="/css/explorer.css">
</head>
<body>
<noscript>The explorer needs JavaScript. The <a href="/docs/reference">reference</a> works without it.</noscript>
${header('/swagger')}
<main id="explorer"></main>
<script src="/swagger/swagger-ui-bundle.js"></script>
<script src="/swagger/start.js"></script>
</body>
</html>
`.html;

/**
 * The script that starts Swagger UI. It has its own path, because the content security policy forbids inline scripts.
 */
export const swaggerStart = `const isDark = matchMedia('(prefers-color-scheme: dark)').matches;
document.documentElement.classList.toggle('dark-mode', isDark);
SwaggerUIBundle({
  url: '/docs/openapi.json',
  dom_id: '#explorer',
  deepLinking: true,
  tryItOutEnabled: true,
  docExpansion: 'list',
  defaultModelsExpandDepth: -1,
  validatorUrl: null,
});
`;

/** The style of the header above the explorer. The style sheet of the other pages would change how Swagger UI looks. */
export const explorerStyle = `body { margin: 0; }
body > header {
  padding: 0.75rem 1.25rem;
  border-bottom: 1px solid #8884;
  background: Canvas;
  color: CanvasText;
  color-scheme: light dark;
  font: 1rem/1.5 system-ui, sans-serif;
}
body > header nav { display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; }
body > header a { color: LinkText; }
body > header a[aria-current] { color: inherit; font-weight: 600; text-decoration: none; }
`;
