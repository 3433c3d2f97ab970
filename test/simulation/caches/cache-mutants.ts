import type { Mutant } from '../mutants.ts';

/** Faults of the response cache and its way to the changes. The simulation of `responses` must find them. */
export const responseMutants: readonly Mutant[] = [
  {
    name: 'the process of a write does not drop its own responses',
    file: 'src/response-cache/response-cache.ts',
    text: 'this.#store.drop(key);\n    await',
    replacement: 'await',
    seed: 1,
  },
  {
    name: 'a read is cached although a write was under way',
    file: 'src/response-cache/response-cache.ts',
    text: 'if (cacheable && representation) {',
    replacement: 'if (source && representation) {',
    seed: 1,
  },
  {
    name: 'an expired response is served without a proof',
    file: 'src/response-cache/response-cache.ts',
    text: 'this.#writeMonitor.unchangedUntil(response.source, response.readAt) +',
    replacement: 'now +',
    seed: 1,
  },
  {
    name: 'a read that began before a change is stored after it',
    file: 'src/response-cache/response-store.ts',
    text: 'if (owner?.resources.get(name) !== resource) return false;',
    replacement: 'if (!owner) return false;\n    resource = this.resource(tenant, name);',
    seed: 1,
  },
  {
    name: 'a response counts for a later record of the tenant',
    file: 'src/response-cache/response-store.ts',
    text: 'owner?.record === tenant ? owner : undefined',
    replacement: 'owner',
    seed: 1,
  },
  {
    name: 'a poll that finds a connection proves the database unchanged',
    file: 'src/postgres/change-counters.ts',
    text: 'now?.isUnused === true && now.fingerprint === proof',
    replacement: 'now?.fingerprint === proof',
    seed: 13,
  },
  {
    name: 'the counters are read before the sessions',
    file: 'src/postgres/change-counters.ts',
    text: 'numbackends = 0 as "isUnused",',
    replacement: 'tup_inserted, numbackends = 0 as "isUnused",',
    seed: 1017,
  },
  {
    name: 'a fingerprint proves also what was before it',
    file: 'src/response-cache/write-monitor.ts',
    text: 'if (state && readAt > state.since)',
    replacement: 'if (state)',
    seed: 9,
  },
  {
    name: 'a write is announced before its lock is held',
    file: 'src/connections/write-locks.ts',
    text: "await this.#query({ name: 'hold', text: 'select pg_advisory_lock_shared($1)', values: [lock] });\n    await announce();",
    replacement:
      "await announce();\n    await this.#query({ name: 'hold', text: 'select pg_advisory_lock_shared($1)', values: [lock] });",
    seed: 1,
  },
  {
    name: 'the locks are released while a write is under way',
    file: 'src/connections/write-locks.ts',
    text: 'if (!this.#isInUse()) this.#releaseAll();',
    replacement: 'this.#releaseAll();',
    seed: 1,
  },
  {
    name: 'an announcement joins a batch that has been sent',
    file: 'src/control/announcer.ts',
    text: 'nextBatch = undefined;\n      return send(payloads);',
    replacement: 'return send(payloads).finally(() => (nextBatch = undefined));',
    seed: 1,
  },
  {
    name: 'caches keep their entries when the change feed reconnects',
    file: 'src/control/change-feed.ts',
    text: "this.#dispatch('*:*');\n    this.#provenAt",
    replacement: 'this.#provenAt',
    seed: 1,
  },
  {
    name: 'the proof of the change feed counts from its response',
    file: 'src/control/change-feed.ts',
    text: "await client.query('select 1');\n    delivery.check(queriedAt);\n    return queriedAt;",
    replacement: "await client.query('select 1');\n    delivery.check(queriedAt);\n    return this.#clock.now();",
    seed: 1,
  },
];

/** Faults of the token and directory caches. The simulation of `sessions` must find them. */
export const sessionMutants: readonly Mutant[] = [
  {
    name: 'a verified token counts although its records have changed',
    file: 'src/tenancy/verified-tokens.ts',
    text: 'if (entry.isCurrent()) return entry.verified;',
    replacement: 'if (entry) return entry.verified;',
    seed: 1,
  },
  {
    name: 'a verified token counts although the change feed is not current',
    file: 'src/control/directory.ts',
    text: 'if (!feed.current) return false;',
    replacement: '',
    seed: 1,
  },
  {
    name: 'records are returned from memory although the change feed is not current',
    file: 'src/control/cache.ts',
    text: 'if (!feed.current) return load(key);',
    replacement: '',
    seed: 1,
  },
  {
    name: 'a change does not remove the record that is being loaded',
    file: 'src/control/cache.ts',
    text: '} else {\n      this.#entries.delete(key);',
    replacement: '} else {\n      if (this.#entries.peek(key)?.value) this.#entries.delete(key);',
    seed: 1,
  },
  {
    name: 'the records of a session are cached although they have changed meanwhile',
    file: 'src/control/cache.ts',
    text: 'this.#changeCount === changeCount && ',
    replacement: '',
    seed: 1,
  },
  {
    name: 'the process that ends a session keeps it',
    file: 'src/control/directory.ts',
    text: 'invalidateSession: (id: string) => sessions.invalidate(id)',
    replacement: 'invalidateSession: (_: string) => {}',
    seed: 1,
  },
];
