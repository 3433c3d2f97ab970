import { execFile, spawnSync } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { dashboardFile, dashboardText } from '../../deploy/grafana/dashboard.ts';
import { metricDefinitions } from '../../deploy/grafana/metric-definitions.ts';
import { figures } from '../../deploy/grafana/overview.ts';
import { prometheusRuleFile, prometheusRuleText } from '../../deploy/prometheus/prometheus-rule.ts';
import { root } from '../support/command-line.ts';
import { useFolder } from '../support/use.ts';
import { faults, nightFaults, quietNights } from './alert-faults.ts';
import { metricsIn, nightTests } from './alert-tests.ts';
import { readYaml } from './read-deploy.ts';

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly labels: { severity: string };
  readonly annotations: { summary: string; runbook_url: string };
}

/** The metrics of other programs: of Prometheus itself, and of kube-state-metrics. */
const foreignMetrics = ['up', 'kube_job_status_failed'];

describe('alerts and dashboards', () => {
  let rules: Rule[];
  let metrics: string[];
  const folder = useFolder();

  before(async () => {
    const [{ groups }] = (await readYaml('prometheus/rules.yaml')) as [
      { groups: { rules: Rule[] }[] },
    ];
    rules = groups.flatMap(group => group.rules);
    metrics = metricDefinitions().flatMap(({ name, type }) =>
      type === 'histogram' ? [name, `${name}_bucket`, `${name}_count`, `${name}_sum`] : [name],
    );
  });

  it('every alert has a severity, a summary, and a paragraph in the handbook, to which its address leads', async () => {
    const handbook = await readFile(join(root, 'docs/operate/incidents.md'), 'utf8');
    const section = handbook.split('\n## Alerts\n')[1]?.split('\n## ')[0] ?? '';
    const headings = [...section.matchAll(/^### (\w+)\n\n(.+)/gm)];
    expect(headings.map(match => match[1])).to.deep.equal(rules.map(({ alert }) => alert));

    for (const { alert, labels, annotations } of rules) {
      const text = headings.find(match => match[1] === alert)?.[2] ?? '';
      expect(text.startsWith('Critical: '), alert).to.equal(labels.severity === 'critical');
      expect(annotations.summary, alert).to.be.a('string');
      expect(annotations.runbook_url).to.equal(
        `https://api.example.com/docs/operate/incidents#${alert.toLowerCase()}`,
      );
    }
  });

  // A drill lets each of them fire.
  it('every alert has a fault that fires it', () => {
    expect([...new Set(faults.flatMap(({ alerts }) => alerts))]).to.have.members(
      rules.map(({ alert }) => alert),
    );
  });

  it('every metric in an alert or a dashboard exists', async () => {
    const queries = allPanels(await readFile(dashboardFile, 'utf8')).flatMap(({ targets = [] }) =>
      targets.map(({ expr }) => expr),
    );
    expect(queries).to.have.length.greaterThan(60);
    for (const query of [...rules.map(({ expr }) => expr), ...queries]) {
      expect([...metrics, ...foreignMetrics], query).to.include.members(metricsIn(query));
    }
  });

  it('every metric of the service is in the dashboard', () => {
    expect(allPanels(dashboardText()).map(({ title }) => title)).to.include.members(
      metricDefinitions().map(({ name }) => name),
    );
  });

  it('the dashboard opens with eight figures, each red at the limit of an alert, and the alerts; all other panels are folded', () => {
    const { panels } = JSON.parse(dashboardText()) as { panels: Panel[] };
    const open = panels.filter(({ type }) => type !== 'row');
    expect(open.map(({ type }) => type)).to.deep.equal([...Array(8).fill('stat'), 'table']);

    const [first, ...others] = panels
      .filter(({ type }) => type === 'row')
      .map(({ collapsed }) => collapsed);
    expect(first).to.equal(false);
    expect(new Set(others)).to.deep.equal(new Set([true]));

    for (const { alert, red, yellow, unit } of figures) {
      const { expr } = rules.find(rule => rule.alert === alert) ?? { expr: '' };
      const limits = [...expr.matchAll(/> ([\d.]+)(?: \* ([\d.]+))?/g)].map(
        ([, a, b = '1']) => Number(a) * Number(b),
      );

      // A number of things that should be 0 is red from 1 on.
      expect(unit === 'short' ? [...limits, 1] : limits, alert).to.include(red);
      expect(expr, alert).to.not.equal('');
      expect(yellow, alert).to.be.at.most(red);
    }

    const ids = allPanels(dashboardText()).map(({ id }) => id);
    expect(ids).to.deep.equal([...new Set(ids)]);
  });

  it('the generated files are those of the metrics and rules of this build (npm run -s deploy:generate)', async () => {
    expect(await readFile(dashboardFile, 'utf8')).to.equal(dashboardText());
    expect(await readFile(prometheusRuleFile, 'utf8')).to.equal(await prometheusRuleText());
  });

  it('an alert on a share, an average or a quantile has a floor in events', () => {
    const shares = rules.filter(({ expr }) => /\)\s*\/\s*[a-z]|histogram_quantile|avg/.test(expr));
    expect(shares.map(({ alert }) => alert)).to.deep.equal([
      'BackofficeErrors',
      'BackofficeErrorsPersist',
      'BackofficeSlow',
      'BackofficeConnectionsScarce',
    ]);

    for (const { alert, expr } of shares) {
      const conditions = expr.split(/^\s*and\s*$/m).map(condition => condition.trim());
      const isFloor = (condition: string): boolean =>
        /^sum( by \(\w+\))? \((increase|rate)\([^/]+\)\) > [1-9]\d*$/.test(
          condition.replace(/^sum\(/, 'sum ('),
        );
      expect(conditions.some(isFloor), alert).to.equal(true);
    }
  });

  it('a few failed, slow or waiting requests of a quiet night fire no alert, and an outage at night does', async function () {
    if (spawnSync('promtool', ['--version']).error) this.skip();
    const path = join(folder, 'night.json');
    const tests = nightTests(join(root, 'deploy/prometheus/rules.yaml'), quietNights, nightFaults);
    await writeFile(path, JSON.stringify(tests));

    const { stdout } = await promisify(execFile)('promtool', ['test', 'rules', path]).catch(
      error => error as { stdout: string },
    );

    expect(stdout).to.include('SUCCESS');
  });

  it('promtool accepts the rules and the configuration of Prometheus', async function () {
    if (spawnSync('promtool', ['--version']).error) this.skip();
    await promisify(execFile)('promtool', [
      'check',
      'config',
      join(root, 'deploy/prometheus/prometheus.yaml'),
    ]);
  });
});

interface Panel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly collapsed?: boolean;
  readonly targets?: { expr: string }[];
  readonly panels?: Panel[];
}

/** Returns the panels of a dashboard, also those in folded rows. */
function allPanels(dashboard: string): Panel[] {
  const { panels } = JSON.parse(dashboard) as { panels: Panel[] };
  return panels.flatMap(panel => [panel, ...(panel.panels ?? [])]);
}
