import type { TracingSettings } from '../config/tracing-settings.ts';
import type { HttpMiddleware } from '../request-state.ts';
import { RecordedTrace } from './recorded-trace.ts';
import type { Trace } from './trace.ts';
import { traceRequests } from './trace-requests.ts';

export interface Tracing {
  /**
   * Makes the middleware that gives each request a span.
   * @param publicUrl under which clients reach the service
   */
  requests(publicUrl: string): HttpMiddleware;
  /** Begins the trace of work that is no request; undefined if the sampler leaves it out. */
  begin(): Trace | undefined;
  /** Exports the spans that have ended, for at most `maxStopMs`. */
  stop(): Promise<void>;
}

const maxStopMs = 3_000; // a slow collector does not delay the stop for longer

/**
 * Starts to record spans and to send them to the collector of OpenTelemetry that the settings
 * name. Loads the SDK only then: without a collector, the process contains none of it.
 * @param settings undefined when they name no collector: then nothing is traced
 * @param warn takes a message when spans cannot be exported, at most once a minute
 */
export async function startTracing(
  settings: TracingSettings | undefined,
  warn: (message: string) => void,
): Promise<Tracing | undefined> {
  if (!settings) return undefined;

  const { BatchSpanProcessor, TracerProvider, ...samplers } = await import(
    '@opentelemetry/sdk-trace'
  );
  const { OTLPTraceExporter } = await import('@opentelemetry/exporter-trace-otlp-http');
  const resources = await import('@opentelemetry/resources');
  const api = await import('@opentelemetry/api');

  const { url, sampler, ratio, serviceName, exportEveryMs } = settings;
  const onFailure = failureReport(warn);
  const { AlwaysOnSampler, ParentBasedSampler, TraceIdRatioBasedSampler } = samplers;
  const [, parentBased, name] = /^(parentbased_)?(\w+)$/.exec(sampler) ?? [];
  const share = { always_on: 1, always_off: 0 }[name ?? ''] ?? ratio;

  const exporter = new OTLPTraceExporter({ url });
  const provider = new TracerProvider({
    resource: resources
      .resourceFromAttributes({ 'service.name': serviceName })
      .merge(resources.detectResources({ detectors: [resources.resourceAttributesEnvDetector] })),
    // The middleware has decided on requests whose client has not decided.
    sampler: parentBased
      ? new ParentBasedSampler({ root: new AlwaysOnSampler() })
      : new TraceIdRatioBasedSampler(share),
    spanProcessors: [
      new BatchSpanProcessor({
        exporter: reporting(exporter, onFailure),
        scheduledDelayMillis: exportEveryMs,
      }),
    ],
  });

  const tracer = provider.getTracer('sales-back-office');
  const begunShare = parentBased ? share : 1; // otherwise the sampler decides

  return {
    requests: publicUrl => traceRequests(api, tracer, { share: begunShare, publicUrl }),
    begin: () => (Math.random() < begunShare ? new RecordedTrace(api, tracer) : undefined),
    stop: async () => {
      const timeout = new Promise(resolve => setTimeout(resolve, maxStopMs).unref());
      await Promise.race([provider.shutdown().catch(onFailure), timeout]);
    },
  };
}

/** Reports a failed export, at most once a minute. Not its error, which may contain headers. */
function failureReport(warn: (message: string) => void): () => void {
  let reportedAt = Number.NEGATIVE_INFINITY;
  return () => {
    if (performance.now() - reportedAt < 60_000) return;
    reportedAt = performance.now();
    warn('spans could not be exported: check the collector and OTEL_EXPORTER_OTLP_ENDPOINT');
  };
}

interface Exporter {
  export(spans: never, done: (result: { code: number }) => void): void;
}

/** Calls `onFailure` when an export fails. */
function reporting<T extends Exporter>(exporter: T, onFailure: () => void): T {
  const send = exporter.export.bind(exporter);
  exporter.export = (spans, done) =>
    send(spans, result => {
      if (result.code !== 0) onFailure();
      done(result);
    });
  return exporter;
}
