import { actorCount, entityCount } from './history-rows.ts';

/** A kind of request; `who` sends it. */
export interface Read {
  readonly who: 'admin' | 'self';
  readonly path: (number: number) => string;
  /** Each request is for the page after that of the request before. */
  readonly isPaged?: boolean;
}

const activities = '/api/v1/Activity?limit=20';
const audit = '/api/v1/AuditLog?limit=20';
const users = '/api/v1/Users?limit=20';
const units = '/api/v1/UnitsOfMeasure?limit=20';
const newest = '&sort=-CreatedAt';

const user = (number: number): number => 1 + (number % actorCount);
const entity = (number: number): number => 1 + ((number * 97) % entityCount);

function read(path: Read['path'] | string, who: Read['who'] = 'admin'): Read {
  return { who, path: typeof path === 'string' ? () => path : path };
}

function paged(path: string, who: Read['who'] = 'admin'): Read {
  return { ...read(path, who), isPaged: true };
}

/**
 * The measured requests.
 * @param rows the number of activities
 * @param middle a time between the oldest and the newest
 */
export function historyReads(rows: number, middle: Date): Record<string, Read> {
  const before = `filter[CreatedAt][lt]=${middle.toISOString()}`;

  return {
    'activity by its id': read(number => `/api/v1/Activity/${rows - number}`),
    'activities: newest 20': read(activities),
    'activities: of a user': read(number => `${activities}&userId=${user(number)}`),
    'activities: of an entity': read(number => `${activities}&entityId=${entity(number)}`),
    'activities: of a user and an entity': read(
      number => `${activities}&userId=${user(number)}&entityId=${entity(number)}`,
    ),
    'activities: scope Self': read(activities, 'self'),
    'activities: oldest 20': read(`${activities}&sort=CreatedAt`),
    'activities: next pages': paged(activities + newest),
    'activities: next pages, from the middle': paged(`${activities}${newest}&${before}`),
    'activities: next pages of a user': paged(`${activities}${newest}&userId=7`),
    'activities: next pages, scope Self': paged(activities + newest, 'self'),
    'activities: of a code': read(
      number => `${activities}${newest}&filter[ActivityCode]=${100 + (number % 40)}`,
    ),
    'audit: newest 20': read(audit),
    'audit: of a resource': read(`${audit}&resource=Currency`),
    'audit: of a record': read(number => `${audit}&resource=Entity&key=${entity(number)}`),
    'audit: of a user': read(number => `${audit}&userId=${user(number)}`),
    'audit: scope Self': read(audit, 'self'),
    'audit: next pages': paged(`${audit}&sort=-Id`),
    'audit: next pages, from the middle': paged(`${audit}${newest}&${before}`),
    'audit: next pages of a user': paged(`${audit}&sort=-Id&userId=7`),
    'audit: next pages, scope Self': paged(`${audit}&sort=-Id`, 'self'),
    'reference data: next pages': paged(`${units}&sort=Code`),
    'reference data: search': read(number => `${units}&sort=Code&q=product+${1 + number}`),
    'users: first 20': read(users),
    'users: next pages': paged(`${users}&sort=Email`),
    'users: next pages by last login': paged(`${users}&sort=-LastLoginAt`),
    'users: of a name': read(number => `${users}&sort=Id&filter[LastName]=Last+${number % 997}`),
    'users: search': read(number => `${users}&sort=Email&q=user-${1 + number}`),
  };
}

/** The path of the next page that a response names. */
export function nextPage(response: Response): string | undefined {
  return /<([^>]+)>; rel="next"/.exec(response.headers.get('Link') ?? '')?.[1];
}
