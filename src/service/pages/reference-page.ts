import { STATUS_CODES } from 'node:http';
import { codeBlock, type Html, html, htmlTable } from '../../lib/html/html.ts';
import { clientSample, curlSample, type SampleValues, sampleValues } from './code-samples.ts';
import { renderFragment, renderInline } from './markdown.ts';
import { isJson } from './media-types.ts';
import { type PageChain, page, type Site } from './page.ts';
import type { Endpoint, EndpointGroup, Parameter, Schema } from './reference.ts';

/** An endpoint: its description, its parameters and responses, and beside them the examples. */
function endpointSection(endpoint: Endpoint, values: SampleValues): Html {
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
function methodName(method: string): Html {
  return html`<span class="method ${method}">${method}</span>`;
}

/**
 * The tables of the parameters. Those that every list has are folded, because the guide
 * explains them.
 */
function parameterTables({ parameters }: Endpoint): Html {
  const isShared = (name: string): boolean => /^(sort|q|bom|filter.*)$/.test(name);
  const own = parameters.filter(({ name }) => !isShared(name));
  const shared = withOperators(parameters.filter(({ name }) => isShared(name)));
  const ownTable = own.length > 0 ? html`<h3>Parameters</h3>${parameterTable(own)}` : html``;
  if (shared.length === 0) return ownTable;
  return html`${ownTable}<details><summary>Sort, filter and search</summary>
<p>As <a href="/docs/guide/lists">every list</a>.</p>${parameterTable(shared)}</details>`;
}

/** The filters of a field as one parameter, whose description names the operators. */
function withOperators(parameters: readonly Parameter[]): Parameter[] {
  const operator = /^(filter\[\w+\])\[(\w+)\]$/;
  const fields = parameters.filter(({ name }) => !operator.test(name));

  return fields.map(field => {
    const names = parameters
      .map(({ name }) => operator.exec(name))
      .filter(found => found?.[1] === field.name)
      .map(found => `\`[${found?.[2]}]\``);
    if (names.length === 0) return field;

    return { ...field, description: `${field.description} Also with ${names.join(', ')}.` };
  });
}

function requestBody({ body }: Endpoint): Html | undefined {
  if (!body) return undefined;
  if (!isJson(body.mediaType)) {
    return html`<h3>Request body</h3><p>A file: ${body.mediaType}.</p>
${codeBlock(String(body.example), 'An example of the file')}`;
  }
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

/** A table with the name, the place and type, and the description of each parameter. */
function parameterTable(parameters: readonly Parameter[]): Html {
  return htmlTable(
    ['Parameter', 'Type', 'Meaning'],
    parameters.map(({ name, in: place, required, description = '', schema }) =>
      row(name, schema, { place, required, description: [description, limitText(schema)] }),
    ),
  );
}

/**
 * A table with the name, type and description of each property of an object. For input, it also
 * shows which are required, and the limits.
 */
function propertyTable(schema: Schema, { isInput }: { isInput: boolean }): Html {
  return htmlTable(['Field', 'Type', 'Meaning'], propertyRows(schema, isInput, ''));
}

/**
 * The rows of properties. The properties of objects in a list follow the list, with its name
 * before theirs.
 */
function propertyRows(
  { properties = {}, required = [] }: Schema,
  isInput: boolean,
  prefix: string,
): Html[][] {
  return Object.entries(properties).flatMap(([name, schema]) => {
    const description = [schema.description ?? '', isInput ? limitText(schema) : ''];
    const own = row(`${prefix}${name}`, schema, {
      required: isInput && required.includes(name),
      description,
    });
    return [
      own,
      ...(schema.items ? propertyRows(schema.items, isInput, `${prefix}${name}[].`) : []),
    ];
  });
}

interface RowOptions {
  place?: string;
  required: boolean;
  description: string[];
}

function row(name: string, schema: Schema, { place, required, description }: RowOptions): Html[] {
  const flag = required ? html` <span class="required">required</span>` : '';
  const type = [place, typeText(schema)].filter(Boolean).join(', ');
  return [
    html`<code>${name}</code>${flag}`,
    html`${type}`,
    renderInline(description.filter(Boolean).join(' ')),
  ];
}

function typeText({ type, anyOf, format, enum: values, items, const: only }: Schema): string {
  if (anyOf) return anyOf.map(typeText).join(' or ');
  if (only !== undefined) return JSON.stringify(only);
  if (values) return values.map(value => JSON.stringify(value)).join(' or ');

  const names = [type].flat().map(name => {
    if (name === 'array') return `list of ${items?.properties ? 'objects' : typeText(items ?? {})}`;
    return name === 'string' && format ? (formatNames[format] ?? format) : name;
  });
  return names.filter(Boolean).join(' or ') || 'any';
}

const formatNames: Record<string, string> = {
  'date-time': 'time',
  uuid: 'UUID',
  email: 'e-mail address',
};

/** `At most 50 characters.`, `From 1 to 9. By default 1.` */
function limitText({ maxLength, minimum, maximum, maxItems, default: value }: Schema): string {
  const [from, to] = [minimum, maximum].map(shown);

  return [
    maxLength === undefined ? '' : `At most ${maxLength.toLocaleString('en')} characters.`,
    maxItems === undefined ? '' : `At most ${maxItems} items.`,
    from && to ? `From ${from} to ${to}.` : from ? `At least ${from}.` : to ? `At most ${to}.` : '',
    value === undefined || value === null ? '' : `By default \`${JSON.stringify(value)}\`.`,
  ]
    .filter(Boolean)
    .join(' ');
}

/** A bound as text; undefined for the bounds of the number types, which say nothing. */
function shown(bound: number | undefined): string | undefined {
  if (bound === undefined || Math.abs(bound) >= 2 ** 31 - 1) return undefined;
  return bound.toLocaleString('en');
}

const overview = { path: '/docs/reference', title: 'Overview' };

/** The pages of the reference, in the order in which they are read. */
export function referenceChain(groups: readonly EndpointGroup[]): PageChain {
  const pages = groups.map(({ page, name }) => ({ path: page, title: name }));
  return {
    name: 'Reference',
    pages: [overview, ...pages, { path: '/docs/errors', title: 'Errors' }],
  };
}

/** The page of a group of endpoints. */
export function groupPage(tag: string, groups: readonly EndpointGroup[], site: Site): string {
  const group = groups.find(({ name }) => name === tag);
  if (!group) throw new Error(`no endpoint has the tag ${tag}`);

  const { name, description, endpoints } = group;
  const values = sampleValues(group, site.base);
  const body = html`<h1>${name}</h1>
${renderFragment(description)}
${endpoints.map(endpoint => endpointSection(endpoint, values))}`;
  const sections = endpoints.map(({ id, summary }) => [id, summary] as const);

  return page({
    site,
    path: group.page,
    title: name,
    chain: referenceChain(groups),
    sections,
    body,
  });
}

/** The page of all endpoints, one a line, in the groups of the pages that describe them. */
export function referencePage(groups: readonly EndpointGroup[], site: Site): string {
  const body = html`<h1>Reference</h1>
<p>Every endpoint with its parameters, fields, errors and examples. The <a href="/swagger">explorer</a> calls them, and
the <a href="/docs/openapi.json">OpenAPI document</a> describes them for programs.</p>
<p>The examples for curl use <code>$TOKEN</code>, an access token, and <code>$TENANT</code>, the guid of the tenant.
Those in TypeScript use <code>office</code>, an instance of the client: see
<a href="/docs/guide/first-call">First call</a>.</p>
${groups.map(groupLines)}`;
  return page({
    site,
    path: overview.path,
    title: 'Reference',
    chain: referenceChain(groups),
    sections: [],
    body,
  });
}

function groupLines({ name, page, description, endpoints }: EndpointGroup): Html {
  const lines = endpoints.map(({ id, method, path, summary }) => {
    const address = html`${methodName(method)} <code class="path">${path}</code>`;
    return html`<li><a href="${page}#${id}">${address}</a> <span class="about">${summary}</span></li>`;
  });
  return html`<h2 id="${name}"><a href="${page}">${name}</a></h2>
<p>${renderInline(description.split('\n')[0] ?? '')}</p>
<ul class="endpoints">${lines}</ul>`;
}
