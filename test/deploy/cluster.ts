/**
 * The fields of `Cluster` of CloudNativePG that the manifests use. No package has the schema of this kind: compare a
 * further field with `kubectl explain cluster.spec`, or with the API reference of CloudNativePG 1.30.
 */
export interface Cluster {
  apiVersion: 'postgresql.cnpg.io/v1';
  kind: 'Cluster';
  metadata: { name: string; labels?: Record<string, string>; annotations?: Record<string, string> };
  spec: {
    instances: number;
    imageName: string;
    storage: { size: string };
    walStorage?: { size: string };
    resources?: Record<'requests' | 'limits', { cpu?: string; memory?: string }>;
    postgresql?: { parameters?: Record<string, string> };
    bootstrap?: {
      initdb?: {
        database: string;
        owner: string;
        secret?: { name: string };
        localeCollate?: string;
        localeCType?: string;
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
