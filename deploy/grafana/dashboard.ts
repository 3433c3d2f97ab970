import type { MetricDefinition } from '../../src/metrics/metrics.ts';
import { metricDefinitions } from './metric-definitions.ts';
import { overview } from './overview.ts';
import { type PanelContent, queryOf, unitOf } from './panels.ts';

export const dashboardFile = new URL('dashboards/backoffice.json', import.meta.url);

/** The rows of the dashboard. A metric is in the first row that its name fits. */
const rows: readonly [title: string, names: RegExp][] = [
  ['Requests', /^(http|tenant)_/],
  ['Database connections', /^database_/],
  ['Response cache', /^(response_cache|change_feed)_/],
  ['Tenants and migrations', /^(tenants|build_info|migration_run)/],
  ['Backups', /^backup_/],
  ['Logins, mails and limits', /^(password|mails|rate_limits)_/],
  ['Processes', /^(workers|log_lines|large_read|unsent_response|process_)/],
  ['Node', /./],
];

const columns = 3;
const width = 24 / columns;
const height = 8;

/** Returns a dashboard of Grafana: an overview, and a panel for each metric of the service with its help as description. */
export function dashboardText(): string {
  const definitions = metricDefinitions();
  const rowOf = ({ name }: MetricDefinition): string => rows.find(([, names]) => names.test(name))?.[0] ?? '';
  const sections: [string, PanelContent[]][] = [
    ['Overview', overview],
    ...rows.map(([title]): [string, PanelContent[]] => [
      title,
      definitions.filter(definition => rowOf(definition) === title).map(panelOf),
    ]),
  ];
  const dashboard = {
    uid: 'backoffice',
    title: 'Sales back office',
    description: 'Generated from the definitions of the metrics by npm run -s deploy:generate.',
    tags: ['backoffice'],
    schemaVersion: 39,
    refresh: '30s',
    time: { from: 'now-6h', to: 'now' },
    panels: layOut(sections),
  };
  return `${JSON.stringify(dashboard, null, 2)}\n`;
}

function panelOf(definition: MetricDefinition): PanelContent {
  const { name, help } = definition;
  return { title: name, description: help, unit: unitOf(definition), queries: [queryOf(definition)] };
}

/** Places the panels under the titles of their sections, and numbers them. */
function layOut(sections: [string, PanelContent[]][]): object[] {
  const panels: object[] = [];
  let y = 0;
  for (const [title, contents] of sections) {
    panels.push({
      id: panels.length + 1,
      type: 'row',
      title,
      collapsed: false,
      gridPos: { x: 0, y, w: 24, h: 1 },
      panels: [],
    });
    y++;
    contents.forEach((content, index) => {
      const gridPos = {
        x: (index % columns) * width,
        y: y + Math.floor(index / columns) * height,
        w: width,
        h: height,
      };
      panels.push({ id: panels.length + 1, ...timeSeries(content), gridPos });
    });
    y += Math.ceil(contents.length / columns) * height;
  }
  return panels;
}

function timeSeries({ title, description, unit, queries }: PanelContent): object {
  const datasource = { type: 'prometheus', uid: 'prometheus' };
  return {
    type: 'timeseries',
    title,
    description,
    datasource,
    fieldConfig: { defaults: { unit, min: 0, custom: { fillOpacity: 10, showPoints: 'never' } }, overrides: [] },
    options: { tooltip: { mode: 'multi', sort: 'desc' }, legend: { displayMode: 'list', placement: 'bottom' } },
    targets: queries.map(([expr, legendFormat], index) => ({
      refId: String.fromCharCode(65 + index),
      datasource,
      expr,
      legendFormat,
    })),
  };
}
