import { expect } from 'chai';
import { eventually } from '../../support/eventually.ts';
import { controlSql, useWorld } from '../../support/world.ts';

/** A metric of the text format of Prometheus. */
interface Metric {
  help: string;
  type: string;
  labels: Set<string>;
}

const abbreviations = new Set('s ms us ns sec b kb mb gb tb pb m h d'.split(' '));
const otherUnits = (
  'milliseconds? microseconds? nanoseconds? minutes? hours? days? weeks? bits? kilobytes? megabytes? ' +
  'gigabytes? kibibytes? mebibytes? gibibytes? percent fahrenheit kelvin milli\\w+ kilo\\w+'
).split(' ');
const otherUnit = new RegExp(`_(${otherUnits.join('|')})(_|$)`);

/**
 * The rules of `promtool check metrics` (prometheus/util/promlint): returns what it would say
 * about one metric.
 */
function lint(name: string, { help, type, labels }: Metric): string[] {
  const isDistribution = type === 'histogram' || type === 'summary';

  const rules: [boolean, string][] = [
    [help === '', 'no help text'],
    [type === 'counter' && !name.endsWith('_total'), 'counter metrics should have "_total" suffix'],
    [
      type !== 'counter' && name.endsWith('_total'),
      'non-counter metrics should not have "_total" suffix',
    ],
    [
      !isDistribution && /_(count|sum|bucket)$/.test(name),
      'only histograms and summaries have this suffix',
    ],
    [type !== 'histogram' && labels.has('le'), 'only histograms have the label le'],
    [type !== 'summary' && labels.has('quantile'), 'only summaries have the label quantile'],
    [new RegExp(`_${type}(_|$)`).test(name), 'metric name should not include type'],
    [name.includes(':'), 'metric names should not contain ":"'],
    [/[a-z][A-Z]/.test(name), 'metric names should be written in snake_case'],
    [
      [...labels].some(label => /[a-z][A-Z]/.test(label)),
      'label names should be written in snake_case',
    ],
    [
      name.split('_').some(part => abbreviations.has(part)),
      'metric names should not contain abbreviated units',
    ],
    [otherUnit.test(name), 'use base units: seconds, bytes, ratio'],
  ];

  return rules.filter(([broken]) => broken).map(([, text]) => `${name}: ${text}`);
}

function parse(text: string): Map<string, Metric> {
  const metrics = new Map<string, Metric>();
  for (const [, name = '', help = ''] of text.matchAll(/^# HELP (\S+) (.*)$/gm)) {
    expect(metrics.has(name), `${name} is there twice`).to.equal(false);
    metrics.set(name, { help, type: '', labels: new Set() });
  }
  for (const [, name = '', type = ''] of text.matchAll(/^# TYPE (\S+) (\w+)$/gm)) {
    const metric = metrics.get(name);
    if (metric) metric.type = type;
  }
  for (const [, series = '', labels = ''] of text.matchAll(/^(\w+)\{(.*)\} /gm)) {
    const metric = metrics.get(series) ?? metrics.get(series.replace(/_(bucket|sum|count)$/, ''));
    for (const [, label = ''] of labels.matchAll(/(\w+)="(?:[^"\\]|\\.)*"/g)) {
      metric?.labels.add(label);
    }
  }
  return metrics;
}

describe('names of metrics', () => {
  const world = useWorld({ SMTP_URL: 'smtp://127.0.0.1:1' });

  const read = async (): Promise<string> =>
    (await fetch(`http://127.0.0.1:${world.service.managementPort}/metrics`)).text();

  it('every metric has a name, a type and a help text that promtool check metrics accepts', async () => {
    const user = await world.login(world.acme);
    await user.get('/api/v1/EntityStatus');
    await user.withToken('a.b.c').get('/api/v1/EntityStatus');
    const metrics = parse(await read());
    expect(metrics.size).to.be.above(40);
    expect([...metrics].flatMap(([name, metric]) => lint(name, metric))).to.deep.equal([]);
  });

  it('the check finds names that promtool refuses', () => {
    const metric = { help: 'x', type: 'gauge', labels: new Set<string>() };

    for (const name of [
      'nodejs_active_handles_total',
      'request_ms',
      'size_kilobytes',
      'a_count',
      'a_gauge',
      'aB',
      'a:b',
    ]) {
      expect(lint(name, metric), name).to.have.length(1);
    }

    expect(lint('requests', { ...metric, type: 'counter', help: '' })).to.have.length(2);
  });

  it('metrics show the build, the tenants by state and version, and the newest migration run', async () => {
    const runs = await controlSql<{ id: string }>(
      world,
      `insert into migration_runs (state, head, requested_by, finished_at)
       values ('failed', '0001-head', 'me', now()) returning id`,
    );
    await controlSql(
      world,
      `insert into migration_outcomes (run_id, tenant_id, state) values (?, ?, 'failed'), (?, ?, 'migrated')`,
      [runs[0]?.id, world.acme.id, runs[0]?.id, world.globex.id],
    );

    const { service } = await world.startAnotherServer();
    const text = await (await fetch(`http://127.0.0.1:${service.managementPort}/metrics`)).text();

    expect(text).to.match(
      /^build_info\{version="\d+\.\d+\.\d+",schema_version="\d{4}-[\w-]+"\} 1$/m,
    );
    expect(text).to.match(/^tenants\{state="active",schema_version="\d{4}-[\w-]+"\} 2$/m);
    expect(text).to.include(
      'migration_run_last_info{state="failed",schema_version="0001-head"} 1\n',
    );
    expect(text).to.include('migration_run_last_tenants{outcome="failed"} 1\n');
    expect(text).to.include('migration_run_last_tenants{outcome="migrated"} 1\n');

    const times = [
      ...text.matchAll(/^migration_run_last_(?:start|finish)_timestamp_seconds ([\d.]+)$/gm),
    ];
    expect(times).to.have.length(2);
    for (const [, seconds] of times) {
      expect(Math.abs(Number(seconds) - Date.now() / 1_000)).to.be.below(60);
    }
  });

  it('the metrics show a Redis that fails', async () => {
    expect(await read()).to.include('rate_limits_own 0\n');
    const { service } = await world.startAnotherServer({ REDIS_URL: 'redis://127.0.0.1:1' });
    const text = await (await fetch(`http://127.0.0.1:${service.managementPort}/metrics`)).text();
    expect(text).to.include('rate_limits_own 1\n');
  });

  it('a mail that cannot be sent is counted', async () => {
    const body = { email: world.acme.admin.email };
    await world.anonymous.post('/api/v1/auth/reset-password', body, {
      'X-Tenant': world.acme.guid,
    });
    await eventually(async () => /^mails_failed_total [1-9]/m.test(await read()));
    expect(await read()).to.include('mails_sent_total 0\n');
  });

  it('the metrics are rendered while the control database does not respond', async () => {
    const { service } = await world.startAnotherServer();
    await world.control.em.fork().transactional(async em => {
      await em.execute('lock table tenants in access exclusive mode');
      const text = await (await fetch(`http://127.0.0.1:${service.managementPort}/metrics`)).text();
      expect(text)
        .to.include('build_info{')
        .and.not.match(/^tenants\{/m);
    });
  });
});
