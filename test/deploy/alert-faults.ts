/** A fault as Prometheus sees it: the series that differ from those of a calm day. */
export interface Fault {
  /** The alerts that fire then, and no others. */
  readonly alerts: readonly string[];
  /** Minutes after the begin of the fault. */
  readonly after: number;
  /**
   * Values by series, in the notation of promtool. They replace all series of the same name.
   */
  readonly series: Readonly<Record<string, string>>;
}

/** The calm minutes before each fault, and the minutes that a fault lasts. */
export const calmMinutes = 30;
const faultMinutes = 1_600;

/** A gauge that changes with the fault. */
const to = (fault: number, calm = 0): string =>
  `${calm}+0x${calmMinutes - 1} ${fault}+0x${faultMinutes}`;
/**
 * A counter that begins to grow with the fault.
 * @param perMinute how much it grows
 */
const grows = (perMinute: number): string =>
  `0+0x${calmMinutes - 1} 0+${perMinute}x${faultMinutes}`;
/** A counter that grows all the time. */
const always = (perMinute: number): string => `0+${perMinute}x${calmMinutes + faultMinutes}`;
/** The time of something that should happen again and again, and no longer does. */
const stopsAt = (secondsBefore: number): string => {
  const last = calmMinutes * 60 - secondsBefore;
  return `${last}+0x${calmMinutes + faultMinutes}`;
};

/** Status 503 at a share of all requests. */
const failing = (share: number): Fault['series'] => ({
  'http_requests_total{status="200",route="/api/v1/Countries",method="GET"}': always(1_000),
  'http_requests_total{status="503",route="/api/v1/Countries",method="GET"}': grows(1_000 * share),
});

/** A counter that grows by 1 every seven minutes, as at night. */
const seldom = Array.from({ length: 100 }, (_, count) => `${count}+0x6`).join(' ');
/** A counter that grows once, to `count`, in minute 300 of a series that exists. */
const once = (count: number): string => `0+0x299 ${count}+0x399`;
const route = 'route="/api/v1/Countries",method="GET"';

/** A few events of a quiet night, a large share of its events: none of them fires an alert. */
export const quietNights: Readonly<Record<string, Fault['series']>> = {
  'one failed request': {
    [`http_requests_total{status="200",${route}}`]: seldom,
    [`http_requests_total{status="503",${route}}`]: once(1),
  },
  'five failed requests': {
    [`http_requests_total{status="200",${route}}`]: seldom,
    [`http_requests_total{status="500",${route}}`]: once(2),
    [`http_requests_total{status="503",${route}}`]: once(3),
  },
  'one slow request': {
    [`http_request_duration_seconds_bucket{le="1",${route}}`]: seldom,
    [`http_request_duration_seconds_bucket{le="+Inf",${route}}`]: seldom,
    'http_request_duration_seconds_bucket{le="1",route="/other"}': once(0),
    'http_request_duration_seconds_bucket{le="10",route="/other"}': once(1),
    'http_request_duration_seconds_bucket{le="+Inf",route="/other"}': once(1),
    [`http_request_duration_seconds_count{${route}}`]: seldom,
    'http_request_duration_seconds_count{route="/other"}': once(1),
  },
  'one long wait for a connection': {
    'database_connection_wait_seconds_total{server="db:5432"}': once(2),
    'database_connection_waits_total{server="db:5432"}': once(1),
  },
  'a backup run that takes two hours': {
    backup_last_success_timestamp_seconds: '17700+0x420 25200+60x279',
    backup_running_since_timestamp_seconds: '_x295 18000+0x124 _x280',
  },
  'one request without a connection': {
    'database_connections_refused_total{server="db:5432"}': once(1),
    'database_connection_wait_seconds_total{server="db:5432"}': once(2),
    'database_connection_waits_total{server="db:5432"}': once(1),
  },
};

/** Faults of a quiet night, which fire their alert all the same. */
export const nightFaults: readonly Fault[] = [
  {
    alerts: ['BackofficeErrors', 'BackofficeErrorsPersist'],
    after: 60,
    series: {
      'http_requests_total{status="200",route="/api/v1/Countries",method="GET"}': seldom,
      'http_requests_total{status="503",route="/api/v1/Countries",method="GET"}': `0+0x${calmMinutes - 1} 0+0.2x${faultMinutes}`,
    },
  },
];

export const faults: readonly Fault[] = [
  { alerts: ['BackofficeDown'], after: 3, series: { up: to(0, 1) } },
  {
    alerts: ['BackofficeProcessDown'],
    after: 8,
    series: { up: to(1, 1), 'up{instance="service-2:3001"}': to(0, 1) },
  },
  {
    alerts: ['BackofficeRestarting'],
    after: 6,
    series: { process_start_time_seconds: `0+0x${calmMinutes - 1} 60+60x${faultMinutes}` },
  },
  { alerts: ['BackofficeWorkersDying'], after: 2, series: { workers_died_total: grows(1) } },
  { alerts: ['BackofficeErrors', 'BackofficeErrorsPersist'], after: 60, series: failing(0.05) },
  { alerts: ['BackofficeErrorsPersist'], after: 405, series: failing(0.008) },
  {
    alerts: ['BackofficeSlow'],
    after: 30,
    series: {
      'http_request_duration_seconds_bucket{le="1",route="/api/v1/Countries"}': always(100),
      'http_request_duration_seconds_bucket{le="2.5",route="/api/v1/Countries"}': grows(20),
      'http_request_duration_seconds_bucket{le="+Inf",route="/api/v1/Countries"}': `0+100x${calmMinutes - 1} ${calmMinutes * 100}+120x${faultMinutes}`,
      'http_request_duration_seconds_count{route="/api/v1/Countries"}': always(120),
    },
  },
  { alerts: ['BackofficeChangeFeedLost'], after: 3, series: { change_feed_current: to(0, 1) } },
  { alerts: ['BackofficeMasterKeyUnknown'], after: 3, series: { master_key_known: to(0, 1) } },
  {
    alerts: ['BackofficeConnectionsRefused'],
    after: 5,
    series: { 'database_connections_refused_total{server="db:5432"}': grows(3) },
  },
  {
    alerts: ['BackofficeConnectionsScarce'],
    after: 25,
    series: {
      'database_connection_wait_seconds_total{server="db:5432"}': grows(60),
      'database_connection_waits_total{server="db:5432"}': always(200),
    },
  },
  {
    alerts: ['BackofficeEventLoopSlow'],
    after: 15,
    series: { nodejs_eventloop_lag_p99_seconds: to(0.3, 0.01) },
  },
  { alerts: ['BackofficeLoginsWaiting'], after: 8, series: { password_hashes_waiting: to(50) } },
  { alerts: ['BackofficeRateLimitsOwn'], after: 8, series: { rate_limits_own: to(1) } },
  {
    alerts: ['BackofficeMailsFailing'],
    after: 20,
    series: { mail_longest_wait_seconds: to(1_000) },
  },
  {
    alerts: ['BackofficeWebhooksWaiting'],
    after: 10,
    series: { webhook_longest_wait_seconds: to(600) },
  },
  {
    alerts: ['BackofficeLogLinesDropped'],
    after: 5,
    series: { log_lines_dropped_total: grows(50) },
  },
  {
    alerts: ['BackofficeResponsesCut'],
    after: 5,
    series: { unsent_responses_cut_total: grows(2) },
  },
  {
    alerts: ['BackofficeUpgradeUnfinished'],
    after: 45,
    series: {
      'tenants{state="active",schema_version="0021_new"}': to(3),
      'tenants{state="active",schema_version="0020_old"}': to(2, 5),
      'build_info{version="0.1.0",schema_version="0020_old"}': `1+0x${calmMinutes - 1} _x${faultMinutes}`,
      'build_info{version="0.2.0",schema_version="0021_new"}': to(1, 1),
    },
  },
  {
    alerts: ['BackofficeMigrationFailed'],
    after: 3,
    series: { 'migration_run_last_info{state="failed",schema_version="0021_new"}': to(1) },
  },
  {
    alerts: ['BackofficeMigrationSlow'],
    after: 130,
    series: {
      'migration_run_last_info{state="running",schema_version="0021_new"}': to(1),
      migration_run_last_start_timestamp_seconds: to(calmMinutes * 60),
    },
  },
  {
    alerts: ['BackofficeBackupOld'],
    after: 20,
    series: { backup_last_success_timestamp_seconds: stopsAt(60) },
  },
  { alerts: ['BackofficeBackupMissing'], after: 70, series: { backup_tenants_unarchived: to(2) } },
  { alerts: ['BackofficeArchivesFaulty'], after: 2, series: { backup_archives_faulty: to(1) } },
  {
    alerts: ['BackofficeArchivesNotRemoved'],
    after: 70,
    series: { backup_archives_not_removed: to(12) },
  },
  {
    alerts: ['BackofficePurgedArchivesLeft'],
    after: 70,
    series: { backup_purged_tenants_left: to(1) },
  },
  {
    alerts: ['BackofficeJobFailed'],
    after: 2,
    series: { 'kube_job_status_failed{job_name="backoffice-doctor-29000000"}': to(1) },
  },
];
