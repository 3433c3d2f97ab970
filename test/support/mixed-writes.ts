import type pg from 'pg';
import type { Client } from './client.ts';
import { failuresOf, type Served, sendSteadily } from './steady-load.ts';
import { notWrittenOnce } from './written-once.ts';

const select = `
  select comment as "Title" from activities where comment like 'drill %'
  union all select name from entities where name like 'drill %'`;

/** The writes of a load, and the texts of those that the client knows to be done. */
export interface MixedWrites {
  readonly served: readonly Served[];
  readonly failed: number;
  readonly acknowledged: readonly string[];
}

/**
 * Writes steadily until `until` resolves: every fifth time an entity, otherwise an activity.
 */
export async function writeSteadily(
  client: Client,
  perSecond: number,
  until: Promise<unknown>,
): Promise<MixedWrites> {
  const acknowledged: string[] = [];
  const served = await sendSteadily(perSecond, until, async number => {
    const text = `drill ${number} of ${Math.random()}`;
    const { status } = await (number % 5 === 0
      ? client.post('/api/v1/Entities', { Name: text, EntityType: 'customer' })
      : client.post('/api/v1/Activity', { ActivityCode: 7, Comment: text }));
    if (status === 201) acknowledged.push(text);
    return status === 201 ? status : `${status}`;
  });
  return { served, failed: failuresOf(served), acknowledged };
}

/**
 * Returns the acknowledged writes that are lost or were made twice, of databases that have all
 * of them together.
 */
export async function lostOrDoubled(
  { acknowledged }: MixedWrites,
  databases: readonly pg.Client[],
): Promise<string[]> {
  const rows: { Title: string }[] = [];
  for (const database of databases) {
    rows.push(...(await database.query<{ Title: string }>(select)).rows);
  }
  return notWrittenOnce(acknowledged, rows);
}
