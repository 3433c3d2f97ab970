import { html, page } from './html.ts';

const contents = [
  ['start', 'Getting started'],
  ['authentication', 'Authentication'],
  ['conventions', 'Conventions'],
  ['permissions', 'Permissions and scope'],
  ['errors', 'Errors'],
  ['limits', 'Limits'],
] as const;

/** How to use the API, from the first call on. @param base address under which clients reach it */
export function guidePage(base: string): string {
  const curl = (text: string) => html`<pre><code>${text}</code></pre>`;
  const body = html`
<h1>Using the API</h1>
<p class="lead">A REST API for the back office of a sales organisation: reference data, entities, activities, and an audit log.
Every company has a database of its own; a token opens exactly one.</p>

<h2 id="start">Getting started</h2>
<p>You need three things from whoever operates the service: the guid of your company (the <em>tenant</em>), an e-mail address, and
a password. Log in, keep the access token, and ask for something:</p>
${curl(`TENANT=00000000-0000-0000-0000-000000000000

curl -s ${base}/api/v1/auth/login \\
  -H "X-Tenant: $TENANT" -H 'Content-Type: application/json' \\
  -d '{"email": "you@example.com", "password": "…"}'`)}
${curl(`TOKEN=…the accessToken of the answer…

curl -s ${base}/api/v1/EntityStatus -H "Authorization: Bearer $TOKEN"`)}
<p>Everything that can be called stands in the <a href="/docs/reference">reference</a>, can be tried out
<a href="/swagger">in the browser</a>, and is described for machines by
<a href="/docs/openapi.json">an OpenAPI 3.1 document</a>.</p>

<h2 id="authentication">Authentication</h2>
<p>Login answers with an <code>accessToken</code> that lives 15 minutes and a <code>refreshToken</code>. Send the access token as
<code>Authorization: Bearer …</code>. It names its tenant, so <code>X-Tenant</code> is only needed to log in and to refresh.</p>
<p>When the access token expires (401 <code>token_expired</code>), exchange the refresh token. It is good once, and its successor is in
the answer:</p>
${curl(`curl -s ${base}/api/v1/auth/refresh \\
  -H "X-Tenant: $TENANT" -H 'Content-Type: application/json' \\
  -d '{"refreshToken": "…"}'`)}
<p>If the answer is lost, the same token may be sent again within 10 seconds and yields the same successor. A refresh token that
comes back later means that somebody else may have it: the session is ended. A session also ends after 7 days without a refresh,
after 30 days in any case, and at <code>POST /api/v1/auth/logout</code>.</p>
${curl(`curl -s ${base}/api/v1/auth/me -H "Authorization: Bearer $TOKEN"`)}

<h2 id="conventions">Conventions</h2>
<ul>
<li>Bodies are JSON objects in UTF-8, <code>Content-Type: application/json</code>, at most 64 KiB (8 KiB under <code>/api/v1/auth</code>).</li>
<li>Fields are written as in the reference, <code>CountryCode</code>; a request may also say <code>countryCode</code>. Unknown fields are ignored.</li>
<li>Types are strict: <code>"5"</code> is not a number. Text is trimmed and put into Unicode form C. Times are UTC, <code>2026-01-31T12:00:00.000Z</code>.</li>
<li>Paths are case-sensitive and have no slash at the end. A code in a path is percent-encoded.</li>
<li>Creating answers 201 with the record and its <code>Location</code>, updating 200 with the record, deleting 204. Codes are unique
without regard to letter case.</li>
<li>A list of reference data that is empty answers 404; entities, activities and the audit log answer <code>[]</code>.</li>
<li>Reads carry an <code>ETag</code>. Send it back as <code>If-None-Match</code> and get 304 while nothing has changed.</li>
<li>What you have written you read at once; what others have written, within a second. <code>Cache-Control: no-cache</code> asks the
database in any case.</li>
</ul>

<h2 id="permissions">Permissions and scope</h2>
<p>An endpoint asks for one permission at most; the reference names it. Permissions come from your role. None implies another.</p>
<p>With the scope <code>All</code> you reach the data of every entity of your company. With <code>Self</code> you see entities, activities
and audit entries of your own entity only, and whatever you create is recorded for it.</p>

<h2 id="errors">Errors</h2>
<p>Every error is <code>application/problem+json</code> (RFC 9457) with a stable <code>code</code> and a <code>traceId</code>; tell us the trace id
when you ask for help. Fields that are wrong are named:</p>
<pre><code>{
  "type": "/docs/errors#validation_failed",
  "title": "Some fields are not valid",
  "status": 400,
  "code": "validation_failed",
  "traceId": "0f7c1d3e-…",
  "errors": { "CountryName": ["is required"] }
}</code></pre>
<p><a href="/docs/errors">All codes</a>.</p>

<h2 id="limits">Limits</h2>
<div class="table"><table>
<tr><th>What</th><th>How much</th></tr>
<tr><td>All requests of an address</td><td>500 a minute</td></tr>
<tr><td>Login, of an address and e-mail together</td><td>5 in 15 minutes</td></tr>
<tr><td>Records of a page</td><td>20 unless <code>limit</code> says otherwise, at most 1,000</td></tr>
<tr><td>Codes / names / values and comments</td><td>50 / 255 / 4,000 characters</td></tr>
<tr><td>Sessions of a user</td><td>20; the oldest is ended</td></tr>
</table></div>
<p>A limit that is exceeded answers 429 with <code>Retry-After</code>; so does 503 when the service is too busy. Wait that many seconds.</p>`;
  return page({ path: '/docs', title: 'Guide', contents, body });
}
