import { z } from 'zod';
import { count, httpUrl } from './config-values.ts';

const samplers = [
  'always_on',
  'always_off',
  'traceidratio',
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
] as const;

const ratio = z
  .string()
  .regex(/^(0|1|0?\.\d{1,9}|1\.0{1,9})$/, 'must be a number from 0 to 1')
  .transform(Number);

/**
 * The variables of tracing. Names and values are those of OpenTelemetry's specification, and so
 * are the defaults, but for that of the propagators: anybody can send a `traceparent`.
 */
export const tracingVariables = {
  OTEL_EXPORTER_OTLP_ENDPOINT: httpUrl.optional(),
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: httpUrl.optional(),
  OTEL_SDK_DISABLED: z.string().optional(),
  OTEL_SERVICE_NAME: z.string().default('sales-back-office'),
  OTEL_TRACES_SAMPLER: z
    .enum(samplers, `must be one of ${samplers.join(', ')}`)
    .default('parentbased_always_on'),
  OTEL_TRACES_SAMPLER_ARG: ratio.default(1),
  OTEL_PROPAGATORS: z
    .enum(['tracecontext', 'none'], 'must be tracecontext or none')
    .default('none'),
  OTEL_BSP_SCHEDULE_DELAY: count.default(5_000),
};

export type TracingSettings = NonNullable<ReturnType<typeof tracingSettings>>;

/**
 * Returns the settings of tracing: the collector to which spans are sent, the choice of spans,
 * and the interval; undefined when requests are not traced.
 */
export function tracingSettings(env: z.output<z.ZodObject<typeof tracingVariables>>) {
  const {
    OTEL_EXPORTER_OTLP_ENDPOINT: base,
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: endpoint,
    ...others
  } = env;

  const url = endpoint ?? (base && `${base}/v1/traces`);
  if (url === undefined || others.OTEL_SDK_DISABLED?.toLowerCase() === 'true') return undefined;

  return {
    url,
    serviceName: others.OTEL_SERVICE_NAME,
    sampler: others.OTEL_TRACES_SAMPLER,
    /** The share of traces that `traceidratio` records. */
    ratio: others.OTEL_TRACES_SAMPLER_ARG,
    /** Time between two exports, in milliseconds. */
    exportEveryMs: others.OTEL_BSP_SCHEDULE_DELAY,
  };
}
