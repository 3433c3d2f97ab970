import type { MetricDefinition } from '../../src/lib/seams/metric-values.ts';
import { metricDefinitions } from './metric-definitions.ts';
import { alertTable, figures, statPanel } from './overview.ts';
import { datasource, type PanelContent, queryOf, unitOf } from './panels.ts';
import { traffic } from './traffic.ts';

export const dashboardFile = new URL('dashboards/backoffice.json', import.meta.url);

/** The folded rows of the dashboard. A metric is in the first row that its name fits. */
const rows: readonly [title: string, names: RegExp][] = [
  ['Requests', /^(http|tenant)_/],
  ['Database connections', /^database_/],
  ['Response cache', /^(response_cache|change_feed)_/],
  ['Tenants and migrations', /^(tenants|build_info|migration_run)/],
  ['Backups', /^backup_/],
  ['Logins, mails and limits', /^(password|mails?|rate_limits)_/],
  ['Processes', /^(workers|master_key|log_lines|large_read|unsent_response|process_)/],
  ['Node', /./],
];

const columns = 3;
const width = 24 / columns;
const height = 8;
const figureHeight = 5;
const alertsHeight = 6;

/**
 * Returns a dashboard of Grafana: an overview of figures and alerts, and folded rows with a
 * panel for each metric of the service, with its help as description.
 */
export function dashboardText(): string {
  const definitions = metricDefinitions();
  const rowOf = ({ name }: MetricDefinition): string =>
    rows.find(([, names]) => names.test(name))?.[0] ?? '';

  const sections: [string, PanelContent[]][] = [
    ['Traffic', traffic],
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
    panels: [...overview(), ...layOut(sections)].map((panel, index) => ({
      id: index + 1,
      ...panel,
    })),
  };

  return `${JSON.stringify(dashboard, null, 2)}\n`;
}

function panelOf(definition: MetricDefinition): PanelContent {
  const { name, help } = definition;
  return {
    title: name,
    description: help,
    unit: unitOf(definition),
    queries: [queryOf(definition)],
  };
}

/** The figures in one line, and the alerts below. */
function overview(): object[] {
  const figureWidth = 24 / figures.length;
  const row = {
    type: 'row',
    title: 'Overview',
    collapsed: false,
    gridPos: { x: 0, y: 0, w: 24, h: 1 },
    panels: [],
  };
  const stats = figures.map((figure, index) => ({
    ...statPanel(figure),
    gridPos: { x: index * figureWidth, y: 1, w: figureWidth, h: figureHeight },
  }));
  return [
    row,
    ...stats,
    { ...alertTable, gridPos: { x: 0, y: 1 + figureHeight, w: 24, h: alertsHeight } },
  ];
}

/**
 * Places the panels in folded rows, one for each section. Panels in a row have numbers above
 * those of the rows.
 */
function layOut(sections: [string, PanelContent[]][]): object[] {
  const top = 1 + figureHeight + alertsHeight;
  return sections.map(([title, contents], number) => ({
    type: 'row',
    title,
    collapsed: true,
    gridPos: { x: 0, y: top + number, w: 24, h: 1 },
    panels: contents.map((content, index) => ({
      id: (number + 1) * 100 + index,
      ...timeSeries(content),
      gridPos: {
        x: (index % columns) * width,
        y: top + number + 1 + Math.floor(index / columns) * height,
        w: width,
        h: height,
      },
    })),
  }));
}

function timeSeries({ title, description, unit, queries }: PanelContent): object {
  return {
    type: 'timeseries',
    title,
    description,
    datasource,
    fieldConfig: {
      defaults: { unit, min: 0, custom: { fillOpacity: 10, showPoints: 'never' } },
      overrides: [],
    },
    options: {
      tooltip: { mode: 'multi', sort: 'desc' },
      legend: { displayMode: 'list', placement: 'bottom' },
    },
    targets: queries.map(([expr, legendFormat], index) => ({
      refId: String.fromCharCode(65 + index),
      datasource,
      expr,
      legendFormat,
    })),
  };
}
