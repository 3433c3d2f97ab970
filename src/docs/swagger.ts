import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { html } from './html.ts';
import { htmlDocument } from './html-document.ts';
import { header, type Site } from './page.ts';

/** Reads a file of Swagger UI from the package `swagger-ui-dist`. */
export function swaggerFile(name: string): Promise<string> {
  const require = createRequire(import.meta.url);
  return readFile(require.resolve(`swagger-ui-dist/${name}`), 'utf8');
}

/** The page of the explorer (Swagger UI). */
export function swaggerPage(site: Site): string {
  return htmlDocument({
    title: 'Try it out – Sales back office',
    styles: ['/swagger/swagger-ui.css', '/css/base.css', '/css/explorer.css'],
    scripts: ['/docs/search.js'],
    head: html`<script src="/swagger/swagger-ui-bundle.js" defer></script>
<script src="/swagger/start.js" type="module"></script>
`,
    header: header('/swagger', site),
    main: html`
<noscript>The explorer needs JavaScript. The <a href="/docs/reference">reference</a> works without it.</noscript>
<div id="explorer"></div>`,
  });
}
