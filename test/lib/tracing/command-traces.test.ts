import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { backupSettings } from '../../support/backup-settings.ts';
import {
  attributesOf,
  type Collector,
  type Span,
  startCollector,
} from '../../support/collector.ts';
import { runCommand } from '../../support/run-command.ts';
import { controlSql, useWorld } from '../../support/world.ts';

describe('traces of commands', () => {
  const world = useWorld();
  let collector: Collector;
  let folder: string;
  before(async () => {
    collector = await startCollector();
    folder = await mkdtemp(join(tmpdir(), 'traced-'));
    await run('backup', 'init');
  });
  after(async () => {
    collector.server.close();
    await rm(folder, { recursive: true });
  });

  async function run(...args: string[]): Promise<{ code: number | null; stderr: string }> {
    const settings = {
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      ...(await backupSettings(folder)),
    };
    return runCommand('scripts/backoffice.ts', args, { ...world.environment, ...settings });
  }

  /**
   * Runs a command.
   * @returns the span of the command, and those below it
   */
  async function trace(...args: string[]): Promise<{ root: Span | undefined; below: Span[] }> {
    const known = new Set(collector.spans());
    const { stderr } = await run(...args);
    expect(stderr).to.equal('');
    const [[root] = [], below = []] = [true, false].map(isRoot =>
      collector
        .spans()
        .filter(span => !known.has(span) && (span.parentSpanId === undefined) === isRoot),
    );
    for (const { parentSpanId, traceId } of below) {
      expect(parentSpanId).to.equal(root?.spanId);
      expect(traceId).to.equal(root?.traceId);
    }
    return { root, below };
  }
  const tenantsOf = (spans: Span[]) =>
    spans
      .filter(({ name }) => name === 'tenant')
      .map(span => attributesOf(span)['backoffice.tenant']);

  it('migrate sends a span of the run, with one below it for each tenant whose database was opened', async () => {
    await controlSql(world, `update tenants set schema_fingerprint = null where slug = 'globex'`);
    const { root, below } = await trace('migrate', '--all');
    expect(root?.name).to.equal('migrate');
    expect(tenantsOf(below)).to.deep.equal(['globex']);
  });

  it('backup run sends a span for each archive; the span of a failed archive is marked as failed, without its error', async () => {
    await controlSql(
      world,
      `update tenants set database_name = 'secret_name' where slug = 'globex'`,
    );

    try {
      const { root, below } = await trace('backup', 'run', '--all');
      expect(root?.name).to.equal('backup run');
      expect(tenantsOf(below)).to.have.members(['acme', 'globex']);
      expect(below.map(({ name }) => name)).to.include('control database');

      const failed = below.filter(({ status }) => status.code === 2);
      expect(tenantsOf(failed)).to.deep.equal(['globex']);
      expect(collector.bodies.join('')).to.not.include('secret_name');
    } finally {
      await controlSql(world, `update tenants set database_name = ? where slug = 'globex'`, [
        world.globex.database,
      ]);
    }
  });

  it('a command that is not traced, or is only planned, sends nothing', async () => {
    for (const line of ['list', 'backup run --all --dry-run', 'migrate --all --dry-run']) {
      expect(await trace(...line.split(' ')), line).to.deep.equal({ root: undefined, below: [] });
    }
  });
});
