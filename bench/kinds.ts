import type { Plan, Request } from './plan.ts';

/** One kind of request of a comparison of builds. */
export interface Kind {
  readonly name: string;
  readonly title: string;
  /** Returns the requests, which are sent in turn, and the status that they get. */
  readonly plan: (client: KindClient) => Pick<Plan, 'requests' | 'expect'>;
}

/** Makes the requests of which a kind consists. */
interface KindClient {
  /** Makes a request with the token of the tenant's administrator. */
  request(method: Request['method'], path: string, body?: object): Request;
  /** Makes a login of the tenant's administrator. */
  login(): Request;
}

/** The records that a tenant has before the first measurement: so many of each. */
const seeded = { units: 250, entities: 100, activities: 1_000 };

const paths = {
  units: '/api/v1/UnitsOfMeasure',
  entities: '/api/v1/Entities',
  activities: '/api/v1/Activity',
  audit: '/api/v1/AuditLog',
} as const;

const pageLength = 20; // records of a page without `limit`

/** The kinds of requests, in the order of the report. */
export const kinds: Kind[] = [
  reading('list', `the newest ${pageLength} activities`, paths.activities, pageLength),
  reading('one', 'one activity', `${paths.activities}/500`),
  {
    name: 'create',
    title: 'creating an activity',
    plan: ({ request }) => ({
      requests: [request('POST', paths.activities, activity(1))],
      expect: { status: 201 },
    }),
  },
  reading('units', `a list of ${seeded.units} units, from memory`, paths.units, seeded.units),
  reading('unit', 'one unit, from memory', `${paths.units}/1`),
  reading('entity', 'one entity', `${paths.entities}/50`),
  reading('audit', `the newest ${pageLength} audit entries`, paths.audit, pageLength),
  {
    name: 'create-entity',
    title: 'creating an entity, with its audit entry',
    plan: ({ request }) => ({
      requests: [request('POST', paths.entities, entity('New'))],
      expect: { status: 201 },
    }),
  },
  {
    name: 'update',
    title: 'replacing an entity, with its audit entry',
    plan: ({ request }) => ({
      // Each request changes its record, and two that run at once change different ones.
      requests: ['First', 'Second'].flatMap(name =>
        Array.from({ length: seeded.entities }, (_, index) =>
          request('PUT', `${paths.entities}/${index + 1}`, entity(name)),
        ),
      ),
      expect: { status: 200 },
    }),
  },
  {
    name: 'login',
    title: 'login of one user',
    plan: ({ login }) => ({ requests: [login()], expect: { status: 200 } }),
  },
];

/** Returns the requests that make the records of a tenant, each of which gets 201. */
export function seeds({ request }: KindClient): Request[] {
  const times = <Item>(count: number, make: (index: number) => Item): Item[] =>
    Array.from({ length: count }, (_, index) => make(index));

  return [
    ...times(seeded.units, index => {
      const code = `U${String(index).padStart(3, '0')}`;
      return request('POST', paths.units, { Code: code, Name: `Unit of measure ${index}` });
    }),
    ...times(seeded.entities, index => request('POST', paths.entities, entity(`Entity ${index}`))),
    ...times(seeded.activities, index =>
      request('POST', paths.activities, activity(1 + (index % seeded.entities))),
    ),
  ];
}

function reading(name: string, title: string, path: string, records?: number): Kind {
  const expect = records === undefined ? { status: 200 } : { status: 200, records };
  return { name, title, plan: ({ request }) => ({ requests: [request('GET', path)], expect }) };
}

function activity(entityId: number): object {
  return {
    ActivityCode: 100,
    EntityId: entityId,
    Comment: 'Called about the open order',
    Screen: 'Orders',
  };
}

function entity(name: string): object {
  return { Name: name, EntityType: 'customer', StatusId: 1 };
}
