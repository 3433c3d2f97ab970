import { controlHead } from '../../control/control-version.ts';
import { newProcess } from '../../control/process-identity.ts';
import { tenantHead } from '../../control/tenant-head.ts';
import { fieldsText } from '../command/text-table.ts';
import { createOutput } from './output.ts';

/** Prints the build, and the versions of the databases that it needs. */
export async function printVersion(): Promise<void> {
  const { build } = newProcess('command');
  const version = {
    build,
    tenant: await tenantHead(),
    control: await controlHead(),
    node: process.versions.node,
  };
  createOutput(false, () => {}).result(version, () => fieldsText(version));
}
