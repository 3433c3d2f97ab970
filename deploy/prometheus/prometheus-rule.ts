import { readFile } from 'node:fs/promises';

export const prometheusRuleFile = new URL(
  '../kubernetes/components/monitoring/prometheus-rule.yaml',
  import.meta.url,
);

/** Returns the alert rules as a resource of the operator of Prometheus. */
export async function prometheusRuleText(): Promise<string> {
  const rules = await readFile(new URL('rules.yaml', import.meta.url), 'utf8');
  const groups = rules.slice(rules.indexOf('groups:')).replaceAll(/^(?=.)/gm, '  ');
  return `# Generated from deploy/prometheus/rules.yaml by npm run -s deploy:generate.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: backoffice
  labels:
    app.kubernetes.io/name: backoffice
    app.kubernetes.io/component: metrics
    backoffice/order: "4"
spec:
${groups}`;
}
