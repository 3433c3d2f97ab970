import { STATUS_CODES } from 'node:http';
import { clientSample, curlSample, type SampleValues } from './code-samples.ts';
import { codeBlock, type Html, html } from './html.ts';
import { renderFragment } from './markdown.ts';
import { isJson } from './media-types.ts';
import type { Endpoint } from './reference.ts';
import { parameterTable, propertyTable } from './reference-tables.ts';

/** An endpoint: what it does, what it takes and returns, and beside that the examples. */
export function endpointSection(endpoint: Endpoint, values: SampleValues): Html {
  const { id, method, path, summary, description } = endpoint;
  return html`
<section class="endpoint" id="${id}" aria-labelledby="${id}-name">
<div class="text">
<h2 id="${id}-name"><a href="#${id}">${summary}</a></h2>
<p class="route">${methodName(method)} <code class="path">${path}</code></p>
${renderFragment(description)}
${parameterTables(endpoint)}
${requestBody(endpoint)}
${responseBody(endpoint)}
${errorLinks(endpoint)}
</div>
<div class="samples">${samples(endpoint, values)}</div>
</section>`;
}

/** The method of an endpoint, in its colour. */
export function methodName(method: string): Html {
  return html`<span class="method ${method}">${method}</span>`;
}

/** Parameters that every list has are folded: the guide explains them. */
function parameterTables({ parameters }: Endpoint): Html {
  const isShared = (name: string): boolean => /^(sort|q|bom|filter.*)$/.test(name);
  const own = parameters.filter(({ name }) => !isShared(name));
  const shared = parameters.filter(({ name }) => isShared(name));
  const ownTable = own.length > 0 ? html`<h3>Parameters</h3>${parameterTable(own)}` : html``;
  if (shared.length === 0) return ownTable;
  return html`${ownTable}<details><summary>Sort, filter and search</summary>
<p>As <a href="/docs/guide/lists">every list</a>.</p>${parameterTable(shared)}</details>`;
}

function requestBody({ body }: Endpoint): Html | undefined {
  if (!body) return undefined;
  if (!isJson(body.mediaType)) return html`<h3>Request body</h3><p>A file: ${body.mediaType}.</p>`;
  return html`<h3>Request body</h3>${propertyTable(body.schema, { isInput: true })}`;
}

function responseBody({ response: { status, isList, body } }: Endpoint): Html {
  const name = `${status} ${STATUS_CODES[status]}`;
  if (!body) return html`<h3>Response ${name}</h3><p>Without a body.</p>`;
  const table = propertyTable(body.schema, { isInput: false });
  return html`<h3>Response ${name}</h3>${isList ? html`<p>A list of:</p>` : ''}${table}`;
}

function errorLinks({ errors }: Endpoint): Html {
  const rows = errors.map(({ status, codes }) => {
    const links = codes.map(code => html` <a href="/docs/errors#${code}"><code>${code}</code></a>`);
    return html`<dt>${status}</dt><dd>${links}</dd>`;
  });
  return html`<h3>Errors</h3><dl class="codes">${rows}</dl>`;
}

function samples(endpoint: Endpoint, values: SampleValues): Html[] {
  const { method, path, response } = endpoint;
  const name = `${method} ${path}`;
  const calls = [
    sample('curl', curlSample(endpoint, values), name),
    sample('TypeScript', clientSample(endpoint, values), name),
  ];
  const example = response.body?.example;
  if (example === undefined) return [html`<div class="calls">${calls}</div>`];
  const result = sample(`Response ${response.status}`, JSON.stringify(example, null, 2), name);
  return [html`<div class="calls">${calls}</div>`, result];
}

function sample(title: string, code: string, endpoint: string): Html {
  return html`<figure><figcaption>${title}</figcaption>${codeBlock(code, `${title} of ${endpoint}`)}</figure>`;
}
