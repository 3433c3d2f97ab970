import { codeBlock, type Html, html } from './html.ts';
import { renderFragment } from './markdown.ts';
import { page } from './page.ts';
import { parameterTable, propertyTable, type Schema } from './reference-tables.ts';

/** The parts of an OpenAPI document that the page shows. */
interface Document {
  paths: Record<string, Record<string, Operation>>;
  tags: { name: string }[];
  components: { schemas: Record<string, Schema> };
}

interface Operation {
  tags: string[];
  summary: string;
  description: string;
  parameters: { name: string; in: string; required: boolean; description?: string; schema: Schema }[];
  requestBody?: { content: Record<string, { schema: Schema; example?: unknown }> };
  responses: Record<string, { content?: Record<string, { schema: Schema }> }>;
}

/** An operation with the method and the path that identify it. */
interface Endpoint extends Operation {
  method: string;
  path: string;
}

/** Returns the schema that a `$ref` names, or the schema itself. */
type Resolve = (schema: Schema | undefined) => Schema;

/** Every endpoint, grouped by tag. @param document the OpenAPI document of the service */
export function referencePage(document: object): string {
  const { paths, tags, components } = document as Document;
  const resolve: Resolve = schema => components.schemas[schema?.$ref?.split('/').at(-1) ?? ''] ?? schema ?? {};
  const endpoints = Object.entries(paths).flatMap(([path, operations]) =>
    Object.entries(operations).map(([method, operation]) => ({ ...operation, path, method: method.toUpperCase() })),
  );
  const groups = tags.map(({ name }) => {
    const group = endpoints.filter(endpoint => endpoint.tags.includes(name));
    return html`<h2 id="${name}">${name}</h2>${group.map(endpoint => endpointDetails(endpoint, resolve))}`;
  });
  const body = html`<h1>Reference</h1>
<p>Every endpoint with its parameters, request body and response.
All endpoints share the same <a href="/docs/errors">error codes</a>.</p>
${groups}`;
  const sections = tags.map(({ name }) => [name, name] as const);
  return page({ path: '/docs/reference', title: 'Reference', sections, body });
}

function endpointDetails(endpoint: Endpoint, resolve: Resolve): Html {
  const { method, path, summary, description, parameters, responses } = endpoint;
  const errors = Object.keys(responses).filter(status => Number(status) >= 400);
  const heading = html`<span class="method ${method}">${method}</span><code class="path">${path}</code>`;
  return html`<details class="endpoint"><summary>${heading}<span class="about">${summary}</span></summary>
<div class="inside">${renderFragment(description)}
${parameters.length > 0 ? html`<h3>Parameters</h3>${parameterTable(parameters)}` : ''}
${requestBody(endpoint)}
${responseBody(endpoint, resolve)}
<p>Errors: ${errors.join(', ')}</p></div></details>
`;
}

function requestBody({ method, path, requestBody }: Endpoint): Html | undefined {
  const json = requestBody?.content['application/json'];
  if (!json) return undefined;
  const { schema, example } = json;
  const block = example ? codeBlock(JSON.stringify(example, null, 2), `Example of ${method} ${path}`) : '';
  return html`<h3>Request body</h3>${propertyTable(schema, { isInput: true })}${block}`;
}

function responseBody({ responses }: Endpoint, resolve: Resolve): Html | undefined {
  for (const [status, { content }] of Object.entries(responses)) {
    const json = content?.['application/json'];
    if (!json || !status.startsWith('2')) continue;
    const schema = resolve(json.schema);
    const isList = schema.type === 'array';
    const table = propertyTable(isList ? resolve(schema.items) : schema, { isInput: false });
    return html`<h3>Response ${status}</h3>${isList ? html`<p>A list of:</p>` : ''}${table}`;
  }
  return undefined;
}
