import { expect } from 'chai';
import { controlSql, type World } from '../../support/world.ts';

/** Fails when the service's log contains one of these values. */
export function expectNotLogged({ logs }: World, values: Iterable<string>): void {
  const all = [...new Set(values)];
  expect(all.filter(value => value.length < 7)).to.deep.equal([], 'too short to search for');
  expect(all.length, 'number of values to search for').to.be.above(0);
  const text = logs.join('');
  expect(
    all.filter(value => text.includes(JSON.stringify(value).slice(1, -1))),
    'in the log',
  ).to.deep.equal([]);
}

/**
 * Fails when a row of the control database contains one of these values, as text or as the
 * bytes that it encodes.
 */
export async function expectNotStored(world: World, values: string[]): Promise<void> {
  const tables = await controlSql<{ name: string }>(
    world,
    `select quote_ident(table_name) as name from information_schema.tables where table_schema = 'public'`,
  );
  expect(tables.length).to.be.above(8);
  const rows: string[] = [];
  for (const { name } of tables) {
    const found = await controlSql<{ row: string }>(world, `select t::text as row from ${name} t`);
    rows.push(...found.map(({ row }) => row));
  }
  const stored = rows.join('\n');
  for (const value of values) {
    for (const form of [value, hex(Buffer.from(value)), hex(Buffer.from(value, 'base64url'))]) {
      expect(stored.includes(form), `${value} in a table`).to.equal(false);
    }
  }
}

function hex(bytes: Buffer): string {
  return bytes.toString('hex');
}
