import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';

/** A span, as it is sent. */
export interface Span {
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  traceState?: string;
  name: string;
  /** Code 2: it has failed. */
  status: { code: number };
  attributes: { key: string; value: { stringValue?: string; intValue?: number } }[];
}

/** A collector of OpenTelemetry: what the process sent to it. */
export interface Collector {
  readonly server: Server;
  readonly url: string;
  readonly bodies: string[];
  /** Returns the spans of one trace; without an id, all. */
  spans(traceId?: string): Span[];
}

export function attributesOf(span: Span | undefined): Record<string, unknown> {
  const entries =
    span?.attributes.map(({ key, value }) => [key, value.stringValue ?? value.intValue]) ?? [];
  return Object.fromEntries(entries);
}

/** Starts a collector on a free port. */
export async function startCollector(): Promise<Collector> {
  const bodies: string[] = [];
  const spans: Span[] = [];
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    bodies.push(body);
    for (const { scopeSpans } of JSON.parse(body).resourceSpans) {
      for (const scope of scopeSpans) spans.push(...scope.spans);
    }
    response.writeHead(200, { 'Content-Type': 'application/json' }).end('{}');
  });
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const ofTrace = (traceId?: string): Span[] =>
    spans.filter(span => traceId === undefined || span.traceId === traceId);
  return { server, url: `http://127.0.0.1:${port}`, bodies, spans: ofTrace };
}
