import type { PanelContent } from './panels.ts';

const requests = 'http_requests_total{job="backoffice"';
const ofAll = (numerator: string): string =>
  `sum(rate(${numerator}[$__rate_interval])) / sum(rate(${requests}}[$__rate_interval]))`;
const percentile = (share: number): string =>
  `histogram_quantile(${share}, sum by (le) (rate(http_request_duration_seconds_bucket{job="backoffice"}[$__rate_interval])))`;

/** How much is asked of the service, and what that takes. */
export const traffic: PanelContent[] = [
  {
    title: 'Requests per second',
    description: 'Of all processes, by the first digit of the status.',
    unit: 'reqps',
    queries: ['2', '3', '4', '5'].map(digit => [
      `sum(rate(${requests},status=~"${digit}.."}[$__rate_interval]))`,
      `${digit}xx`,
    ]),
  },
  {
    title: 'Failed requests',
    description: 'Share of the requests with status 5xx, and of those with status 429.',
    unit: 'percentunit',
    queries: [
      [ofAll(`${requests},status=~"5.."}`), '5xx'],
      [ofAll(`${requests},status="429"}`), '429'],
    ],
  },
  {
    title: 'Time of requests',
    description: 'From the head of a request to the end of its response.',
    unit: 's',
    queries: [0.5, 0.95, 0.99].map(share => [percentile(share), `p${share * 100}`]),
  },
  {
    title: 'Connections to databases',
    description: 'Of all processes: in use, open, the limit, and the requests that wait for one.',
    unit: 'short',
    queries: ['in_use', 'open', 'limit', 'waiting'].map(name => [
      `sum by (server) (database_connections_${name}{job="backoffice"})`,
      `${name} {{server}}`,
    ]),
  },
  {
    title: 'Responses from memory',
    description: 'Share of the cacheable responses that were served without a query.',
    unit: 'percentunit',
    queries: [
      [
        'sum(rate(response_cache_hits_total{job="backoffice"}[$__rate_interval])) / (sum(rate(response_cache_hits_total{job="backoffice"}[$__rate_interval])) + sum(rate(response_cache_misses_total{job="backoffice"}[$__rate_interval])))',
        'hits',
      ],
    ],
  },
  {
    title: 'CPU time',
    description: 'Cores that each process uses; requests can use one of them.',
    unit: 'short',
    queries: [
      ['rate(process_cpu_seconds_total{job="backoffice"}[$__rate_interval])', '{{instance}}'],
    ],
  },
];
