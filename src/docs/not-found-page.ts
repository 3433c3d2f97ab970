import { html } from './html.ts';
import { page, type Site } from './page.ts';

/** The page for a path that the service does not have, for people who mistyped an address. */
export function notFoundPage(site: Site): string {
  const body = html`
<h1>There is no such page</h1>
<p>The documentation begins with the <a href="/docs">guide</a>. The API is under <code>/api</code>; the
<a href="/docs/reference">reference</a> lists its endpoints.</p>`;
  return page({ site, path: '', title: 'Not found', sections: [], body });
}
