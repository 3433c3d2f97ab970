/** By a word of the documentation, other words under which readers search for it. */
const synonyms: Readonly<Record<string, string>> = {
  cursor: 'pagination paging paginate offset',
  link: 'pagination paging',
  reset: 'forgot forgotten lost recover',
  login: 'sign in signin authenticate authentication',
  logout: 'sign out signout',
  register: 'sign up signup',
  invite: 'add user',
  patch: 'partial update edit modify',
  put: 'update edit modify',
  delete: 'remove destroy',
  restore: 'undelete undo',
  post: 'create add insert',
  duplicate: 'conflict unique already exists 409',
  rate_limited: 'throttling throttle quota',
  ratelimit: 'throttling throttle quota',
  filter: 'where query',
  sort: 'order by ordering',
  count: 'total',
  csv: 'excel spreadsheet bulk upload download',
  idempotency: 'retry retries twice',
  etag: 'concurrency optimistic locking version',
  tenant: 'company account organisation organization',
  permission: 'authorisation authorization access right',
  permissions: 'authorisation authorization access right',
  openapi: 'swagger client sdk',
};

/** Returns the further words by which a text with these words is found. */
export function synonymsOf(words: Iterable<string>): string[] {
  return [...words].flatMap(word => (Object.hasOwn(synonyms, word) ? (synonyms[word] ?? '').split(' ') : []));
}
