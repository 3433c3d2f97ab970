import type { ListQuery } from '../http/lists/list-query.ts';
import { Representation } from '../http/representation.ts';
import type { ListedRecord, ListSource } from './read-records.ts';

/**
 * Returns a function that adds to the JSON text of a record what the request includes: `ETag`, the tag that a read of the
 * record has; `UserName`, the name of the user that `UserId` stands for, or null.
 */
export async function includer(
  { includes }: ListQuery,
  { userNames }: ListSource,
  records: readonly ListedRecord[],
): Promise<(json: string) => string> {
  if (includes.length === 0) return json => json;
  const ids = includes.includes('user') ? records.flatMap(({ json }) => userIdOf(json) ?? []) : [];
  const names = ids.length > 0 ? await userNames?.([...new Set(ids)]) : undefined;
  return json => {
    const fields = includes.map(include =>
      include === 'etag'
        ? `,"ETag":${JSON.stringify(Representation.ofText(json).tag)}`
        : `,"UserName":${JSON.stringify(names?.get(userIdOf(json) ?? 0) ?? null)}`,
    );
    return `${json.slice(0, -1)}${fields.join('')}}`;
  };
}

/** The `UserId` of a record. It is the first text of this form, because all fields before it are numbers and times. */
function userIdOf(json: string): number | undefined {
  const [, digits] = /"UserId":(\d+)/.exec(json.slice(0, 200)) ?? [];
  return digits === undefined ? undefined : Number(digits);
}
