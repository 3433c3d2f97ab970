import { writeFile } from 'node:fs/promises';
import { dashboardFile, dashboardText } from './grafana/dashboard.ts';
import { prometheusRuleFile, prometheusRuleText } from './prometheus/prometheus-rule.ts';

// Writes the files that follow from others: npm run -s deploy:generate

await writeFile(dashboardFile, dashboardText());
await writeFile(prometheusRuleFile, await prometheusRuleText());
