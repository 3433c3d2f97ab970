import { execFile, spawnSync } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { dashboardFile, dashboardText } from '../../deploy/grafana/dashboard.ts';
import { metricDefinitions } from '../../deploy/grafana/metric-definitions.ts';
import { figures } from '../../deploy/grafana/overview.ts';
import { prometheusRuleFile, prometheusRuleText } from '../../deploy/prometheus/prometheus-rule.ts';
import { root } from '../support/command-line.ts';
import { createWorld, type World } from '../support/world.ts';
import { faults } from './alert-faults.ts';
import { alertTests, calm, extend } from './alert-tests.ts';
import { readYaml } from './read-deploy.ts';

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly labels: { severity: string };
  readonly annotations: { summary: string; runbook_url: string };
}

const run = promisify(execFile);

/** The metrics of other programs: of Prometheus itself, and of kube-state-metrics. */
const foreignMetrics = ['up', 'kube_job_status_failed'];
const keywords = ['and', 'or', 'unless', 'by', 'on', 'le', 'job'];

describe('alerts and dashboards', () => {
  let rules: Rule[];
  let metrics: string[];

  before(async () => {
    const [{ groups }] = (await readYaml('prometheus/rules.yaml')) as [{ groups: { rules: Rule[] }[] }];
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
      expect(annotations.runbook_url).to.equal(`https://api.example.com/docs/operate/incidents#${alert.toLowerCase()}`);
    }
  });

  it('every metric in an alert or a dashboard exists', async () => {
    const queries = allPanels(await readFile(dashboardFile, 'utf8')).flatMap(({ targets = [] }) =>
      targets.map(({ expr }) => expr),
    );
    expect(queries).to.have.length.greaterThan(60);
    for (const query of [...rules.map(({ expr }) => expr), ...queries])
      expect([...metrics, ...foreignMetrics], query).to.include.members(metricsIn(query));
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
    const [first, ...others] = panels.filter(({ type }) => type === 'row').map(({ collapsed }) => collapsed);
    expect([first, new Set(others)]).to.deep.equal([false, new Set([true])]);
    for (const { alert, red, yellow, unit } of figures) {
      const { expr } = rules.find(rule => rule.alert === alert) ?? { expr: '' };
      const limits = [...expr.matchAll(/> ([\d.]+)(?: \* ([\d.]+))?/g)].map(([, a, b = '1']) => Number(a) * Number(b));
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

  describe('promtool', () => {
    let world: World;
    let folder: string;

    before(async function () {
      if (spawnSync('promtool', ['--version']).error) {
        console.log('promtool is not installed: the tests of the alerts are skipped');
        this.skip();
      }
      [world, folder] = await Promise.all([createWorld(), mkdtemp(join(tmpdir(), 'backoffice-alerts-'))]);
    });
    after(async () => {
      await world?.close();
      if (folder) await rm(folder, { recursive: true, force: true });
    });

    async function scrape(): Promise<string> {
      const client = await world.login(world.acme);
      for (const path of ['EntityStatus', 'Countries', 'Currencies', 'Users'])
        expect((await client.get(`/api/v1/${path}`)).status).to.be.below(500);
      return (await fetch(`http://127.0.0.1:${world.service.managementPort}/metrics`)).text();
    }

    it('each fault fires its own alert and no other one, and a day like a calm minute of the service fires none', async () => {
      expect([...new Set(faults.flatMap(({ alerts }) => alerts))]).to.have.members(rules.map(({ alert }) => alert));
      const recording = { first: await scrape(), second: await scrape() };
      const names = rules.flatMap(({ expr }) => metricsIn(expr));
      const base = (minutes: number): Record<string, string> => calm(extend(recording, names, minutes), minutes);
      expect(Object.keys(base(1))).to.have.length.greaterThan(20);
      const files = alertTests(join(root, 'deploy/prometheus/rules.yaml'), base, faults);
      const paths = files.map((_, number) => join(folder, `alerts-${number}.json`));
      await Promise.all(files.map((file, number) => writeFile(paths[number] ?? '', JSON.stringify(file))));
      const { stdout } = await run('promtool', ['test', 'rules', ...paths]).catch(error => error as { stdout: string });
      expect(stdout.match(/SUCCESS/g), stdout).to.have.length(files.length);
    });

    it('promtool accepts the rules and the configuration of Prometheus', async () => {
      await run('promtool', ['check', 'config', join(root, 'deploy/prometheus/prometheus.yaml')]);
    });
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

/** Returns the names of metrics in a query: the words that are neither functions nor labels nor keywords. */
function metricsIn(query: string): string[] {
  const bare = query.replaceAll(/\{[^}]*\}|\[[^\]]*\]|"[^"]*"|\b(by|on) \([^)]*\)/g, ' ');
  const words = [...bare.matchAll(/\b[a-z_][a-z_0-9]*\b(?!\s*\()/g)].map(([word]) => word);
  return [...new Set(words.filter(word => !keywords.includes(word)))];
}
