import type { Trace } from '../../tracing/trace.ts';
import type { Operation } from '../command/operation.ts';
import { printWarning } from './output.ts';

/**
 * Runs work in a span of its own, if the runs of the operation are traced and the settings name a collector. Loads
 * nothing of OpenTelemetry otherwise.
 */
export async function traced<T>({ name, isTraced }: Operation, work: (trace?: Trace) => Promise<T>): Promise<T> {
  if (!isTraced) return work();
  const { readConfig } = await import('../../config/config.ts');
  const settings = readConfig().tracing;
  if (!settings) return work();
  const { startTracing } = await import('../../tracing/start-tracing.ts');
  const tracing = await startTracing(settings, printWarning);
  const trace = tracing?.begin();
  return (trace ? trace.step(name, {}, work) : work()).finally(() => tracing?.stop());
}
