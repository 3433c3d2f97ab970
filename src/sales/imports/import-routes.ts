import { z } from 'zod';
import { byteOrderMark, csvRow } from '../../lib/http/request/csv.ts';
import { describeFields, flag, intCount } from '../../lib/http/request/fields.ts';
import { ListExport } from '../../lib/http/request/list-parameters/list-export.ts';
import { keysOf } from '../../lib/narrow.ts';
import { problem } from '../../lib/problems.ts';
import { defineRoute, permissionMissing, type TenantRoute } from '../../tenancy/define-route.ts';
import type { RequestContext } from '../../tenancy/request-context.ts';
import { requireScopeAll } from '../../tenancy/require-manager.ts';
import { oneResource } from '../resources/resource-names.ts';
import type { ResourceDefinition } from '../resources/rest/resource-definition.ts';
import type { ImportReport } from './import-report.ts';
import { type ImportRunner, importDeadlineMs } from './import-runner.ts';
import { importableResources } from './importable-resources.ts';

const path = '/api/v1/Imports';
const tag = 'Import';
const maxBytes = 5 * 1024 * 1024;

const idsDescription =
  '`own` says that the ids in the file are those of this tenant. Needed for a file with ids: `Id` as the key of an ' +
  'upsert, or columns that refer to other records by id.';
const modeDescription = '`create` makes new records only; `upsert` also changes those that exist.';

const importError = describeFields(
  {
    Line: intCount(),
    Row: intCount(),
    Cell: z.string(),
    Field: z.string(),
    Value: z.string(),
    Code: z.string(),
    Reason: z.string(),
  },
  {
    Line: 'The line of the file on which the row begins, from 1.',
    Row: 'The row as a spreadsheet numbers it, from 1: a cell may have several lines.',
    Cell: 'The cell as a spreadsheet names it, such as `C7`; empty if no single cell is wrong.',
    Field: 'The field that is wrong, which names its column; empty if the whole row is.',
    Value: 'The text of that cell, its first 100 characters.',
    Code: 'A stable code for the reason, one of those of `errorCodes`.',
    Reason: 'What is wrong, as text.',
  },
);
const importWarning = describeFields(
  {
    Field: z.string(),
    Value: z.string(),
    Rows: intCount(),
    Reason: z.string(),
  },
  {
    Field: 'The field whose column seems to be changed by a program.',
    Value: 'The text that the records would get, such as `NA`.',
    Rows: 'The number of these records.',
    Reason: 'What is striking, as text.',
  },
);
const view = describeFields(
  {
    Resource: z.string(),
    Mode: z.enum(['create', 'upsert']),
    DryRun: z.boolean(),
    Atomic: z.boolean(),
    Applied: z.boolean(),
    Rows: intCount(),
    Created: intCount(),
    Updated: intCount(),
    Unchanged: intCount(),
    Refused: intCount(),
    Errors: z.array(importError),
    Warnings: z.array(importWarning),
  },
  {
    Resource: 'The name of the resource, such as `Country`.',
    Mode: modeDescription,
    DryRun: 'Whether the import only checks the file, and changes nothing.',
    Atomic: 'Whether one refused row rejects the whole file.',
    Applied:
      'Whether the import has changed the records: false for a dry run and a file that is refused.',
    Rows: 'The rows of the file that have been read, without its header.',
    Created: 'The rows that made a record.',
    Updated: 'The rows that changed a record.',
    Unchanged: 'The rows whose record was the same already.',
    Refused: 'The rows that are wrong; 1 if the header is, or the file as a whole.',
    Errors: 'The first 1,000 errors.',
    Warnings:
      'Of a dry run: the columns in which every cell that was empty became the same short text.',
  },
).meta({ title: tag });

/** The services that the routes use. */
export interface ImportServices {
  imports: ImportRunner;
}

/** Imports of CSV files. An import runs inside its request, in one transaction. */
export function importRoutes(services: ImportServices): TenantRoute[] {
  return [
    defineRoute({
      method: 'POST',
      path,
      access: 'user',
      tag,
      summary: 'Import a CSV file of one resource',
      description:
        'The body is CSV in UTF-8, separated by commas, semicolons or tabs, of at most 5 MB, 10,000 rows and 100 columns; its ' +
        'first row has the names of the fields. Needs the permission that a change of the resource needs, and the scope `All`. ' +
        '`mode=upsert` changes the record with the same code, else the same `Id`. With `dryRun=true`, nothing changes. With ' +
        '`atomic=false`, rows that are refused are left out; otherwise one refused row rejects all. A file with ids is refused with 400 unless ' +
        '`ids=own`: they mean something only in the tenant that gave them. `Accept: text/csv` returns the errors as a file for a spreadsheet.',
      query: z.object({
        resource: oneResource([...importableResources.values()]).describe(
          'The resource whose records the file has, by its name or by that of its path.',
        ),
        mode: z.enum(['create', 'upsert']).default('create').describe(modeDescription),
        dryRun: flag().describe('Whether to check the file only, and change nothing.'),
        atomic: flag(true).describe('Whether one refused row rejects the whole file.'),
        ids: z.enum(['own']).optional().describe(idsDescription),
        bom: flag().describe('Whether CSV begins with a byte order mark, as Excel needs it.'),
      }),
      upload: {
        mediaType: 'text/csv',
        maxBytes,
        tooLarge: 'An import takes at most 5 MB: divide the file, and send the parts.',
        notUtf8:
          'A spreadsheet saves it as "CSV UTF-8", or with the character set Unicode (UTF-8).',
        example: 'Title,Weighting\nKey account,3\nFormer customer,4\n',
      },
      deadlineMs: importDeadlineMs,
      response: view,
      csv: {
        columns: keysOf(importError.shape),
        description: 'The errors of the report: a header, then a row for each; no row if none.',
      },
      takesIdempotencyKey: true,
      problems: ['forbidden', 'validation_failed'],
      handler: async ({ query, readUpload, idempotencyKey, prefersCsv }, context) => {
        const { bom, ...order } = query;
        const resource = requireWriter(order.resource, context);

        const report = await services.imports.run(context, {
          order,
          resource,
          readUpload,
          idempotencyKey,
        });

        return prefersCsv ? errorsAsCsv(report, bom) : (report as z.input<typeof view>);
      },
    }),
  ];
}

function errorsAsCsv({ Errors }: ImportReport, bom: boolean): ListExport {
  const header = keysOf(importError.shape);
  const rows = Errors.map(error => csvRow(header.map(name => error[name])));
  const pieces = [[bom ? byteOrderMark : '', csvRow(header), ...rows].join('')];

  return new ListExport('import-errors', async () => pieces.shift());
}

/** @throws {Problem} 403 unless the caller may change all records of the resource */
function requireWriter(name: string, { caller }: RequestContext): ResourceDefinition {
  const resource = importableResources.get(name);
  if (!resource) throw problem('not_found');

  const permission = resource.access.write;
  if (!caller.permissions.has(permission)) throw permissionMissing(permission);
  requireScopeAll(caller);
  return resource;
}
