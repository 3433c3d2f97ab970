import { html, markdown, page } from './html.ts';

interface Schema {
  $ref?: string;
  type?: string | string[];
  format?: string;
  description?: string;
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  anyOf?: Schema[];
  maxLength?: number;
  minLength?: number;
  minimum?: number;
  maximum?: number;
}

interface Operation {
  tags: string[];
  summary: string;
  description: string;
  parameters: { name: string; in: string; required: boolean; description?: string; schema: Schema }[];
  requestBody?: { content: Record<string, { schema: Schema; example?: unknown }> };
  responses: Record<string, { content?: Record<string, { schema: Schema }> }>;
}

interface Document {
  paths: Record<string, Record<string, Operation>>;
  tags: { name: string }[];
  components: { schemas: Record<string, Schema> };
}

/** The schema itself, where there is a reference to it. */
type Resolve = (schema: Schema | undefined) => Schema;

/** Every endpoint, from the same document that machines read. */
export function referencePage(document: object): string {
  const { paths, tags, components } = document as Document;
  const resolve: Resolve = schema => components.schemas[schema?.$ref?.split('/').at(-1) ?? ''] ?? schema ?? {};
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })),
  );
  const sections = tags.map(({ name }) => {
    const own = operations.filter(({ operation }) => operation.tags.includes(name));
    return html`<h2 id="${name}">${name}</h2>${own.map(({ path, method, operation }) => endpoint(method, path, operation, resolve))}`;
  });
  const body = html`<h1>Reference</h1>
<p class="lead">Every endpoint, what it takes and what it answers. Errors are the same everywhere: see <a href="/docs/errors">the codes</a>.</p>
${sections}`;
  return page({
    path: '/docs/reference',
    title: 'Reference',
    contents: tags.map(({ name }) => [name, name] as const),
    body,
  });
}

function endpoint(
  method: string,
  path: string,
  { summary, description, parameters, requestBody, responses }: Operation,
  resolve: Resolve,
) {
  const json = requestBody?.content['application/json'];
  const answer = Object.entries(responses).find(
    ([status, { content }]) => status.startsWith('2') && content?.['application/json'],
  );
  const rows = parameters.map(({ name, in: place, required, description, schema }) =>
    row(name, `${place}, ${kind(schema)}`, required, description ?? ''),
  );
  return html`<details class="endpoint"><summary><span class="method ${method}">${method}</span><code class="path">${path}</code><span class="about">${summary}</span></summary>
<div class="inside">${markdown(description)}
${rows.length ? html`<h3>Parameters</h3>${table(rows)}` : ''}
${json ? html`<h3>Body</h3>${table(fields(json.schema))}` : ''}
${json?.example ? html`<pre><code>${JSON.stringify(json.example, null, 2)}</code></pre>` : ''}
${answer ? html`<h3>Answer ${answer[0]}</h3>${answerTable(resolve(answer[1].content?.['application/json']?.schema), resolve)}` : ''}
<p>Errors: ${Object.keys(responses)
    .filter(status => Number(status) >= 400)
    .join(', ')}</p></div></details>
`;
}

function answerTable(schema: Schema, resolve: Resolve) {
  return schema.type === 'array'
    ? html`<p>A list of:</p>${table(fields(resolve(schema.items), false))}`
    : table(fields(schema, false));
}

function fields({ properties = {}, required = [] }: Schema, input = true) {
  return Object.entries(properties).map(([name, schema]) =>
    row(name, kind(schema), input && required.includes(name), input ? limits(schema) : undefined),
  );
}

/** @param note undefined = a row of two columns */
function row(name: string, type: string, required: boolean, note?: string) {
  return html`<tr><td><code>${name}</code></td><td>${type}${required ? ', required' : ''}</td>${note === undefined ? '' : html`<td>${note}</td>`}</tr>`;
}

function table(rows: ReturnType<typeof row>[]) {
  return html`<div class="table"><table>${rows}</table></div>`;
}

function kind({ type, anyOf, format, enum: values, items }: Schema): string {
  if (anyOf) return anyOf.map(kind).join(' or ');
  if (values) return values.map(value => JSON.stringify(value)).join(' or ');
  if (type === 'array') return `list of ${kind(items ?? {})}`;
  return [type, format].filter(Boolean).join(', ') || 'anything';
}

function limits({ maxLength, minimum, maximum, default: fallback, anyOf }: Schema): string {
  const inner = anyOf?.[0] ?? {};
  const longest = maxLength ?? inner.maxLength;
  const range = [
    ['from', minimum ?? inner.minimum],
    ['to', maximum ?? inner.maximum],
  ] as const;
  return [
    longest === undefined ? '' : `at most ${longest.toLocaleString('en')} characters`,
    range.flatMap(([word, end]) => (end === undefined ? [] : [`${word} ${end.toLocaleString('en')}`])).join(' '),
    fallback === undefined || fallback === null ? '' : `${JSON.stringify(fallback)} when absent`,
  ]
    .filter(Boolean)
    .join(', ');
}
