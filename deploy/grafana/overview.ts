import { datasource } from './panels.ts';

/** A figure with the value from which on it is yellow, and the one from which on it is red. */
interface Figure {
  readonly title: string;
  readonly unit: string;
  readonly query: string;
  readonly yellow: number;
  /** The limit of the alert. */
  readonly red: number;
  readonly alert: string;
}

const job = '{job="backoffice"}';
const failed = 'sum(rate(http_requests_total{job="backoffice",status=~"5.."}[5m]))';
const times = 'http_request_duration_seconds_bucket{job="backoffice",route!~".*[Ii]mports.*"}';
const behind = `max by (schema_version) (tenants{job="backoffice",state="active"}) unless on (schema_version) build_info${job}`;

/** What to look at first: each figure is red where its alert fires. */
export const figures: readonly Figure[] = [
  {
    title: 'Processes down',
    unit: 'short',
    query: `count(up${job} == 0) or vector(0)`,
    yellow: 1,
    red: 1,
    alert: 'BackofficeProcessDown',
  },
  {
    title: 'Failed requests',
    unit: 'percentunit',
    query: `(${failed} or vector(0)) / sum(rate(http_requests_total${job}[5m]))`,
    yellow: 0.001,
    red: 14.4 * 0.001,
    alert: 'BackofficeErrors',
  },
  {
    title: 'Time of 99 % of the requests',
    unit: 's',
    query: `histogram_quantile(0.99, sum by (le) (rate(${times}[10m])))`,
    yellow: 0.5,
    red: 1,
    alert: 'BackofficeSlow',
  },
  {
    title: 'Wait for a connection',
    unit: 's',
    query: `max(sum by (server) (rate(database_connection_wait_seconds_total${job}[10m])) / sum by (server) (rate(database_connection_waits_total${job}[10m])))`,
    yellow: 0.05,
    red: 0.1,
    alert: 'BackofficeConnectionsScarce',
  },
  {
    title: 'Delay of the event loop',
    unit: 's',
    query: `max(nodejs_eventloop_lag_p99_seconds${job})`,
    yellow: 0.05,
    red: 0.1,
    alert: 'BackofficeEventLoopSlow',
  },
  {
    title: 'Tenants at a version without a process',
    unit: 'short',
    query: `sum(${behind}) or vector(0)`,
    yellow: 1,
    red: 1,
    alert: 'BackofficeUpgradeUnfinished',
  },
  {
    title: 'Age of the newest backup',
    unit: 's',
    query: `time() - max(backup_last_success_timestamp_seconds${job})`,
    yellow: 600,
    red: 900,
    alert: 'BackofficeBackupOld',
  },
  {
    title: 'Tenants without an archive',
    unit: 'short',
    query: `max(backup_tenants_unarchived${job})`,
    yellow: 1,
    red: 1,
    alert: 'BackofficeBackupMissing',
  },
];

/** Returns a panel that shows a figure in the colour of its value. */
export function statPanel({ title, unit, query, yellow, red, alert }: Figure): object {
  const url = `https://api.example.com/docs/operate/incidents#${alert.toLowerCase()}`;
  const steps = [
    { color: 'green', value: null },
    { color: 'yellow', value: yellow },
    { color: 'red', value: red },
  ];

  return {
    type: 'stat',
    title,
    description: `Red where ${alert} fires.`,
    datasource,
    links: [{ title: `What to do: ${alert}`, url, targetBlank: true }],
    fieldConfig: {
      defaults: {
        unit,
        noValue: '–',
        color: { mode: 'thresholds' },
        thresholds: { mode: 'absolute', steps },
      },
      overrides: [],
    },
    options: {
      colorMode: 'background',
      graphMode: 'area',
      reduceOptions: { calcs: ['lastNotNull'] },
    },
    targets: [{ refId: 'A', datasource, expr: query, legendFormat: title }],
  };
}

/** A table of the alerts that fire, which Prometheus has as series. */
export const alertTable: object = {
  type: 'table',
  title: 'Alerts',
  description: 'The alerts of deploy/prometheus/rules.yaml that fire now.',
  datasource,
  fieldConfig: { defaults: { noValue: 'No alert fires' }, overrides: [] },
  transformations: [
    {
      id: 'organize',
      options: { excludeByName: { Time: true, Value: true, __name__: true, alertstate: true } },
    },
  ],
  targets: [
    {
      refId: 'A',
      datasource,
      expr: 'ALERTS{alertname=~"Backoffice.*",alertstate="firing"}',
      format: 'table',
      instant: true,
    },
  ],
};
