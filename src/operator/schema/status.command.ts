import { defineOperation } from '../command/operation.ts';
import { fieldsText, tableText } from '../command/text-table.ts';
import type { FleetStatus } from './fleet-status.ts';

const status = defineOperation({
  name: 'status',
  description: 'show the fleet by schema version and state, and the outcome of the last migration run',
  fields: {},
  examples: ['status', 'status --watch'],
  access: 'statements',
  effect: 'reads',
  repeats: 'sometimes',
  async run(_, { installation, output }) {
    const { fleetStatus } = await import('./fleet-status.ts');
    const found = await fleetStatus(installation);
    output.result(found, () => textOf(found));
  },
});

export const operations = [status];

function textOf({ head, fleet, failing, lastRun }: FleetStatus): string {
  const rows = fleet.map(row => ({ ...row, schemaVersion: row.schemaVersion ?? 'between versions' }));
  const lines = [`This build: ${head}`, '', tableText(rows, 'There is no tenant.')];
  if (lastRun) {
    const { id, state, requestedBy, startedAt, outcomes } = lastRun;
    const counts = Object.entries(outcomes).map(([name, count]) => `${count} ${name}`);
    lines.push('', fieldsText({ 'Last run': `${id}, ${state}, ${startedAt} by ${requestedBy}: ${counts.join(', ')}` }));
  }
  if (failing.length > 0)
    lines.push(
      '',
      'The last migration of these tenants failed:',
      '',
      tableText(failing, ''),
      '',
      'When the cause is gone, migrate them again:',
      '  npx backoffice migrate --retry-failed',
    );
  return lines.join('\n');
}
