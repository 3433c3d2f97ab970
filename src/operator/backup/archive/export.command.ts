import { resolve } from 'node:path';
import { defineOperation } from '../../command/operation.ts';
import { argument, requiredOption } from '../../command/operation-fields.ts';
import { tableText } from '../../command/text-table.ts';

const exportData = defineOperation({
  name: 'export',
  help: {
    description:
      'write the data of a tenant, for the tenant, into a tar file of CSV, with its schema as SQL',
    examples: ['export acme --to acme.tar'],
  },
  fields: {
    slug: argument('slug'),
    to: requiredOption('<file>', 'the tar file on this host, which must not exist', {
      kind: 'file',
      label: 'File',
    }),
  },
  effect: 'changes',
  async plan({ slug, to }, { installation }) {
    const { requireNoFile } = await import('./export-tenant.ts');
    const { findTenant } = await import('../../registry/tenants.ts');
    const file = resolve(to);
    await findTenant(installation, slug);
    await requireNoFile(file);
    return {
      document: { slug, file, state: 'planned' },
      text: () => `${slug} would be exported to ${file}.`,
    };
  },
  async run({ slug, to }, { installation, output, progress }) {
    const { exportTenant } = await import('./export-tenant.ts');
    progress.step(`exporting ${slug}`);
    const report = await exportTenant(installation, slug, resolve(to));
    output.result(report, () =>
      [
        tableText(report.tables, ''),
        '',
        tableText(report.leftOut, ''),
        '',
        `${slug} is exported to ${report.file} (${report.bytes} bytes).`,
      ].join('\n'),
    );
  },
});

export const operations = [exportData];
