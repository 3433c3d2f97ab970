import { expect } from 'chai';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { useConsole } from '../operator/console/console-client.ts';
import { failuresSql, fleetSql, recordedTenants } from '../support/recorded-fleet.ts';
import { useWorld } from '../support/world.ts';

const rounds = 40;
/** The limits of a page: p95 of its time in ms, and its size in bytes. */
const [maxMs, maxBytes] = [200, 60_000];

const pages = [
  '/',
  '/tenants',
  '/tenants?q=t5',
  '/tenants?q=admin@acme.test',
  '/tenants?sort=-server&page=100',
  '/tenants?health=unwell',
  '/tenants?sort=-health',
  '/tenants/acme',
  '/migrations',
  '/migrations/1',
  '/recovery',
  '/recovery?page=150',
  '/recovery/acme',
  '/findings',
  '/findings?page=200',
  '/capacity',
  '/log',
  '/log?slug=acme',
  '/operations',
  '/operations/migrate',
  '/operations/restore?slug=acme',
];

/** Run it on a quiet machine: it measures times. */
describe(`drill: the console of ${recordedTenants.toLocaleString('en')} tenants`, () => {
  const world = useWorld();
  /** Without a limit of time, which a statement reaches on a busy machine. */
  const record = (texts: readonly string[]) =>
    withConnection(world.environment.DATABASE_URL ?? '', async client => {
      await client.query('set statement_timeout = 0');
      for (const text of texts) await client.query(text);
    });
  before(() => record(fleetSql));
  const opened = useConsole(world);

  const measured = () =>
    it(`every page takes at most ${maxMs} ms at p95, and has at most ${maxBytes} bytes`, async () => {
      const rows = [];
      for (const path of pages) {
        const times: number[] = [];
        let size = 0;

        for (let round = 0; round < rounds; round++) {
          const startedAt = performance.now();
          const { status, text } = await opened.get(path);
          times.push(performance.now() - startedAt);
          expect(status, path).to.equal(200);
          size = Buffer.byteLength(text);
        }

        const [p50 = 0, p95 = 0] = [0.5, 0.95].map(
          part => times.sort((a, b) => a - b)[Math.floor(part * rounds)],
        );
        rows.push({ path, p50: Math.round(p50), p95: Math.round(p95), size });
      }

      console.table(rows);
      expect(rows.filter(({ p95, size }) => p95 > maxMs || size > maxBytes)).to.deep.equal([]);
    });

  describe('all of them well', measured);

  describe('all of them with a failed migration, a finding, and a faulty archive', () => {
    before(() => record(failuresSql));
    measured();
  });
});
