import { controlHead } from '../../control/control-version.ts';
import { newProcess } from '../../control/process-identity.ts';
import { tenantHead } from '../schema/tenant-head.ts';
import { printResult, wantsDocuments } from './output.ts';
import { fieldsText } from './text-table.ts';

/** Prints the build, and the versions of the databases that it needs. */
export async function printVersion(): Promise<void> {
  const { build } = newProcess('command');
  const version = { build, tenant: await tenantHead(), control: await controlHead(), node: process.versions.node };
  printResult({ json: wantsDocuments() }, version, () => fieldsText(version));
}
