import { withConnection } from '../../src/lib/postgres/connection.ts';
import type { FaultLedger } from './fault-ledger.ts';
import type { Counter, TenantWrites } from './fault-workload.ts';

/** The number of writes that the tables of a tenant must contain, by kind. */
export interface FinalCounts {
  acknowledged: number;
  unknown: number;
  audited: number;
}

/**
 * Compares the tables of a tenant with what its clients have written: nothing that was
 * acknowledged is lost, nothing is there twice, nothing is of another tenant, and each change
 * has one audit entry.
 */
export async function checkTables(
  writes: TenantWrites,
  report: (violation: string) => void,
): Promise<FinalCounts> {
  const { tenant, counters, appended, created } = writes;
  return withConnection(tenant.adminUrl, async client => {
    const select = async <Row>(text: string): Promise<Row[]> =>
      (await client.query(text)).rows as Row[];

    const rows = await select<{ id: number; code: string; name: string }>(
      'select id, code, name from units_of_measure',
    );
    const activities = await select<{ comment: string }>('select comment from activities');
    const audit = await select<AuditRow>(`
      select action, record_key as key, before ->> 'name' as before, after ->> 'name' as after, after ->> 'code' as code
        from audit_log where resource = 'UnitOfMeasure' order by id`);

    const fail = (text: string): void => report(`${tenant.slug}: ${text}`);
    for (const { name, code } of rows) {
      if (!name.startsWith(`${tenant.slug} `)) fail(`${code} belongs to ${name}`);
    }

    checkLedger(
      'activity',
      appended,
      activities.map(({ comment }) => comment),
      fail,
    );

    const own = new Set(counters.map(({ key }) => key));
    checkLedger(
      'record',
      created,
      rows.filter(({ id }) => !own.has(String(id))).map(({ code }) => code),
      fail,
    );

    const creations = audit.filter(({ action }) => action === 'create').map(({ code }) => code);
    if (new Set(creations).size !== creations.length || creations.length !== rows.length) {
      fail(`${rows.length} records have ${creations.length} audit entries of their creation`);
    }
    for (const counter of counters) checkCounter(counter, rows, audit, fail);

    const acknowledged =
      appended.acknowledged().length + created.acknowledged().length + sumOf(counters);
    const unknown = appended.writes.length + created.writes.length + sumOf(counters) - acknowledged;
    return { acknowledged, unknown, audited: audit.length };
  });
}

interface AuditRow {
  readonly action: string;
  readonly key: string;
  readonly before: string | null;
  readonly after: string;
  readonly code: string;
}

function checkLedger(
  kind: string,
  ledger: FaultLedger,
  found: readonly string[],
  fail: (text: string) => void,
): void {
  const values = new Set(found);
  if (values.size !== found.length) {
    fail(`${found.length - values.size} times, an ${kind} is there twice`);
  }
  for (const { value } of ledger.acknowledged()) {
    if (!values.has(value)) fail(`the acknowledged ${kind} ${value} is lost`);
  }
  for (const value of values) {
    if (!ledger.has(value)) fail(`nobody has written the ${kind} ${value}`);
  }
}

/**
 * The audit entries of a counter are its history: each change adds 1 to the value before it.
 */
function checkCounter(
  counter: Counter,
  rows: readonly { id: number; name: string }[],
  audit: readonly AuditRow[],
  fail: (text: string) => void,
): void {
  const changes = audit.filter(({ action, key }) => action === 'update' && key === counter.key);
  let number = 0;

  for (const { before, after } of changes) {
    if (numberIn(before ?? '') !== number || numberIn(after) !== number + 1) {
      fail(
        `the audit log of ${counter.path} has a change from ${before} to ${after} after ${number}`,
      );
    }
    number = numberIn(after);

    const writer = counter.writers.get(number);
    if (writer !== undefined && after.split(' ')[2] !== writer) {
      fail(`${counter.path} became ${after}, but ${writer} was told that its change was made`);
    }
  }

  const last = rows.find(({ id }) => String(id) === counter.key);
  if (numberIn(last?.name ?? '') !== number) {
    fail(`${counter.path} is ${last?.name}, and its audit log ends at ${number}`);
  }

  for (const acknowledged of counter.writers.keys()) {
    if (acknowledged > number) {
      fail(`the acknowledged change of ${counter.path} to ${acknowledged} is lost`);
    }
  }
}

function numberIn(name: string): number {
  return Number(name.split(' ')[1]);
}

function sumOf(counters: readonly Counter[]): number {
  return counters.reduce((total, { writers }) => total + writers.size, 0);
}
