import { defineEntity, p } from '@mikro-orm/postgresql';
import { z } from 'zod';
import type { ControlDatabase } from '../../control/database.ts';
import { userNamesOf } from '../../control/visible-users.ts';
import {
  describeFields,
  int32,
  lengths,
  limit,
  longId,
  optionalText,
  queryId,
  timestamp,
} from '../../lib/http/request/fields.ts';
import { listContract } from '../../lib/http/request/list-parameters/list-contract.ts';
import { Representation } from '../../lib/http/response/representation.ts';
import { pathId } from '../../lib/http/route.ts';
import type { Condition } from '../../lib/postgres/statement.ts';
import { TableStatements } from '../../lib/postgres/table-statements.ts';
import { problem } from '../../lib/problems.ts';
import { toRow } from '../../lib/runtime/casing.ts';
import type { Caller } from '../../tenancy/caller.ts';
import { defineRoute, type TenantRoute } from '../../tenancy/define-route.ts';
import { readList } from '../../tenancy/lists/read-page.ts';
import { ofOwnEntity, ownEntityId, ownEntityOf } from '../../tenancy/own-entity.ts';

const ActivitySchema = defineEntity({
  name: 'Activity',
  tableName: 'activities',
  properties: {
    id: p.bigint('number').primary(),
    createdAt: p.datetime().defaultRaw('clock_timestamp()'),
    activityCode: p.integer(),
    userId: p.bigint('number').nullable(),
    comment: p.text().nullable(),
    entityId: p.bigint('number').nullable(),
    screen: p.text().nullable(),
    ipAddress: p.text().nullable(),
    /**
     * The caller and address that wrote the entry, whatever its own fields say. Not part of a
     * response.
     */
    recordedBy: p.bigint('number').hidden(),
    recordedFrom: p.text().hidden(),
  },
});
/**
 * Something that a user or a system did, as reported by a client. No request changes or deletes
 * it.
 */
export class Activity extends ActivitySchema.class {}
ActivitySchema.setClass(Activity);

const fields = {
  ActivityCode: 'What happened, as a number. Your programs decide what the numbers mean.',
  UserId: 'The number of the user who did it. Without it, a new entry names the caller.',
  EntityId: 'The `Id` of the entity that the activity is about; null if it is about none.',
  Comment: 'A text about the activity, of several lines; null if there is none.',
  Screen: 'The screen of your program where it happened; null if it is not known.',
  IPAddress:
    'The address of the client. Without it, a new entry has the address that the request came ' +
    'from.',
};

/** The fields of an activity in responses. */
export const activityView = describeFields(
  {
    Id: longId(),
    CreatedAt: timestamp(),
    ActivityCode: int32(),
    UserId: longId().nullable(),
    Comment: z.string().nullable(),
    EntityId: longId().nullable(),
    Screen: z.string().nullable(),
    IPAddress: z.string().nullable(),
  },
  {
    ...fields,
    Id: 'The number of the entry, which the service chooses.',
    CreatedAt:
      'When the entry was stored: the time at which its request began. An entry appears when ' +
      'that request has ended, so it may have an earlier time than one that you have read: to ' +
      'receive new entries, read `GET /api/v1/Changes`.',
  },
).meta({ title: 'Activity' });
const table = new TableStatements(Activity, activityView);

const query = z.object({ limit: limit(), userId: queryId(), entityId: queryId() });
const list = listContract({
  view: activityView,
  query,
  order: { CreatedAt: 'desc', Id: 'desc' },
  key: 'Id',
  search: ['Comment', 'Screen'],
  longTexts: ['Comment'],
  includes: ['etag', 'user'],
});

const entry = describeFields(
  {
    ActivityCode: int32(),
    UserId: longId().nullable().optional(),
    EntityId: longId().nullable().default(null),
    Comment: optionalText({ max: lengths.longText, multiline: true }).nullable().default(null),
    Screen: optionalText({ max: lengths.name }).nullable().default(null),
    IPAddress: optionalText({ max: lengths.ipAddress }).nullable().optional(),
  },
  fields,
);

const path = '/api/v1/Activity';
const common = {
  tag: 'Activity',
  description: 'Entries can be added and read; no request changes or deletes them.',
};

/** A caller of scope `Self` sees only the activities of its own entity. */
function visible(caller: Caller): Condition | undefined {
  const own = ownEntityOf(caller);
  return own && ofOwnEntity('entity_id', own);
}

export function activityRoutes({ control }: { control: ControlDatabase }): TenantRoute[] {
  return [
    defineRoute({
      ...common,
      method: 'GET',
      path: `${path}/:id`,
      access: 'full.read',
      cache: 'revalidate',
      summary: 'One Activity record by its id',
      response: activityView,
      handler: async ({ params }, context) => {
        const id = pathId(params.id, Number.MAX_SAFE_INTEGER);
        const [row] = id
          ? await context.read(table.selectRecord([['id = ?', id], visible(context.caller)]))
          : [];
        if (!row) throw problem('not_found');

        return Representation.ofText(row.json);
      },
    }),

    defineRoute({
      ...common,
      method: 'GET',
      path,
      access: 'full.read',
      summary: 'The newest activities, of a user, an entity, or all',
      query,
      list,
      response: z.array(activityView),
      handler: async ({ query: { limit, userId, entityId }, list }, context) => {
        const conditions: (Condition | undefined)[] = [
          visible(context.caller),
          userId === undefined ? undefined : ['user_id = ?', userId],
          entityId === undefined ? undefined : ['entity_id = ?', entityId],
        ];

        const userNames = userNamesOf(control, context, context.caller);
        const newestFirst = { createdAt: 'desc', id: 'desc' } as const;
        const source = { table, conditions, reads: context, userNames };
        return readList(list, source, { orderBy: newestFirst, limit });
      },
    }),

    defineRoute({
      ...common,
      method: 'POST',
      path,
      access: 'full.manage',
      summary: 'Create one Activity record',
      body: entry,
      example: {
        ActivityCode: 100,
        EntityId: 1,
        Comment: 'Called about the open order',
        Screen: 'Orders',
      },
      response: activityView,
      status: 201,
      hasTag: true,
      takesIdempotencyKey: true,
      location: activity => `${path}/${activity.Id}`,
      handler: async ({ body }, context) => {
        const { caller, origin } = context;
        const reported = { userId: caller.userId, ipAddress: origin.ipAddress, ...toRow(body) };
        const verified = { recordedBy: caller.userId, recordedFrom: origin.ipAddress };

        const row = { ...reported, ...verified };

        // The number in the body is that of the caller (`enforceScope`), if it is not null.
        const own = body.EntityId === null ? undefined : ownEntityOf(caller);
        const insert = own ? table.insert(row, { entityId: ownEntityId(own) }) : table.insert(row);
        const [created] = await context.write(insert);
        return created!;
      },
    }),
  ];
}
