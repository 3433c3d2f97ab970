import { z } from 'zod';
import type { AuthServices } from '../auth/auth-services.ts';
import { problem } from '../errors.ts';
import { flag, int32, longId } from '../http/fields.ts';
import { pathId } from '../http/route.ts';
import { resources } from '../resources/index.ts';
import type { ResourceDefinition } from '../resources/rest/resource-definition.ts';
import { defineRoute, permissionMissing, type TenantRoute } from '../tenancy/define-route.ts';
import type { RequestContext } from '../tenancy/request-context.ts';
import { selectImport } from './import-table.ts';
import { runImports } from './run-import.ts';
import { storeUpload } from './store-upload.ts';

const path = '/api/v1/Imports';
const tag = 'Import';
const maxBytes = 50 * 1024 * 1024;

const importError = z.object({ Line: int32(), Field: z.string(), Code: z.string(), Reason: z.string() });
const view = z
  .object({
    Id: longId(),
    Resource: z.string(),
    Mode: z.enum(['create', 'upsert']),
    DryRun: z.boolean(),
    Atomic: z.boolean(),
    State: z.enum(['queued', 'running', 'done', 'rejected']),
    Rows: int32(),
    Created: int32(),
    Updated: int32(),
    Unchanged: int32(),
    Refused: int32(),
    Errors: z.array(importError),
  })
  .meta({ title: tag });

const definitions: ReadonlyMap<string, ResourceDefinition> = new Map(
  resources.map(({ name, definition }) => [name, definition]),
);
const names = [...definitions.keys()] as [string, ...string[]];

/** Imports of CSV files. A file is stored first; the import runs after the response, in one transaction. */
export function importRoutes({ background }: Pick<AuthServices, 'background'>): TenantRoute[] {
  const running = new Set<string>();
  /** Runs the unfinished imports of the tenant, also those of a process that was killed. */
  const start = (context: RequestContext): void => {
    const { guid } = context.tenant;
    if (running.has(guid)) return;
    running.add(guid);
    background.run('import', () => runImports(context, definitions).finally(() => running.delete(guid)));
  };
  return [
    defineRoute({
      method: 'POST',
      path,
      access: 'user',
      tag,
      summary: 'Import a CSV file of one resource',
      description:
        'The body is CSV in UTF-8, separated by commas or semicolons, of at most 50 MB and 100,000 rows; its first row has ' +
        'the names of the fields. Needs the permission that a change of the resource needs, and the scope `All`. ' +
        '`mode=upsert` changes the record with the same code, else the same `Id`. With `dryRun=true`, nothing changes. With ' +
        '`atomic=false`, rows that are refused are left out; otherwise one refused row rejects all.',
      query: z.object({
        resource: z.enum(names),
        mode: z.enum(['create', 'upsert']).default('create'),
        dryRun: flag(),
        atomic: z
          .enum(['true', 'false'])
          .transform(value => value === 'true')
          .default(true),
      }),
      upload: { mediaType: 'text/csv', maxBytes },
      response: view,
      status: 202,
      location: result => `${path}/${result.Id}`,
      handler: async ({ query, readUpload }, context) => {
        requireWriter(query.resource, context);
        const id = await storeUpload(context, query, readUpload);
        const [stored] = await context.read(selectImport(id));
        start(context);
        return stored as z.input<typeof view>;
      },
    }),
    defineRoute({
      method: 'GET',
      path: `${path}/:id`,
      access: 'user',
      tag,
      summary: 'The state and the result of an import',
      description:
        'Poll it until `State` is `done` or `rejected`. `Errors` has the first 1,000 errors; line 1 of the file is its ' +
        'header. An import can be read for 7 days.',
      response: view,
      handler: async ({ params }, context) => {
        const id = pathId(params.id, Number.MAX_SAFE_INTEGER);
        const [stored] = id ? await context.read(selectImport(id)) : [];
        if (!stored) throw problem('not_found');
        requireWriter(String(stored.Resource), context);
        if (stored.State === 'queued' || stored.State === 'running') start(context);
        return stored as z.input<typeof view>;
      },
    }),
  ];
}

/** @throws {Problem} 403 unless the caller may change all records of the resource */
function requireWriter(resource: string, { caller }: RequestContext): void {
  const permission = definitions.get(resource)?.access.write;
  if (!permission) throw problem('not_found');
  if (!caller.permissions.has(permission)) throw permissionMissing(permission);
  if (caller.scope !== 'All') throw problem('forbidden', { detail: 'This needs the scope All.' });
}
