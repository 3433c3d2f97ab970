/*
 * The fields of the kinds of CloudNativePG and its Barman Cloud plugin that the manifests use.
 * No package has the schemas of these kinds: compare a further field with `kubectl explain
 * cluster.spec`, or with the API references of CloudNativePG 1.30 and of the plugin.
 */

interface Metadata {
  name: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
}

interface Plugin {
  name: 'barman-cloud.cloudnative-pg.io';
}

/** A PostgreSQL server. */
export interface Cluster {
  apiVersion: 'postgresql.cnpg.io/v1';
  kind: 'Cluster';
  metadata: Metadata;
  spec: {
    instances: number;
    imageName: string;
    storage: { size: string };
    walStorage?: { size: string };
    resources?: Record<'requests' | 'limits', { cpu?: string; memory?: string }>;
    postgresql?: { parameters?: Record<string, string> };
    plugins?: (Plugin & {
      isWALArchiver?: boolean;
      parameters?: { barmanObjectName: string; serverName?: string };
    })[];
    bootstrap?: {
      initdb?: {
        database: string;
        owner: string;
        secret?: { name: string };
        encoding?: string;
        localeProvider?: 'builtin' | 'icu' | 'libc';
        builtinLocale?: string;
        locale?: string;
      };
    };
    managed?: {
      roles?: {
        name: string;
        ensure?: 'present' | 'absent';
        login?: boolean;
        createdb?: boolean;
        createrole?: boolean;
        passwordSecret?: { name: string };
      }[];
    };
  };
}

/** The schedule of the base backups of a server. */
export interface ScheduledBackup {
  apiVersion: 'postgresql.cnpg.io/v1';
  kind: 'ScheduledBackup';
  metadata: Metadata;
  spec: {
    /** Six fields: seconds come first. */
    schedule: string;
    immediate?: boolean;
    backupOwnerReference?: 'none' | 'self' | 'cluster';
    cluster: { name: string };
    method: 'plugin';
    pluginConfiguration: Plugin;
  };
}

interface SecretKey {
  name: string;
  key: string;
}

/** The place of base backups and of the write-ahead log. */
export interface ObjectStore {
  apiVersion: 'barmancloud.cnpg.io/v1';
  kind: 'ObjectStore';
  metadata: Metadata;
  spec: {
    /** Days, weeks or months: `7d`. */
    retentionPolicy?: `${number}${'d' | 'w' | 'm'}`;
    configuration: {
      destinationPath: string;
      s3Credentials: Record<'accessKeyId' | 'secretAccessKey' | 'region', SecretKey>;
      wal?: { compression?: 'bzip2' | 'gzip' | 'lz4' | 'snappy' | 'xz' | 'zstd' };
      data?: { compression?: 'bzip2' | 'gzip' | 'snappy' };
    };
  };
}
