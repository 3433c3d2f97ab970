import { writeFile } from 'node:fs/promises';
import { dashboardFile, dashboardText } from './grafana/dashboard.ts';
import { contentsFile, contentsText } from './handbook/contents.ts';
import { referenceFile, referenceText } from './handbook/reference.ts';
import { prometheusRuleFile, prometheusRuleText } from './prometheus/prometheus-rule.ts';

// Writes the files that follow from others: npm run -s deploy:generate

await writeFile(dashboardFile, dashboardText());
await writeFile(prometheusRuleFile, await prometheusRuleText());
await writeFile(referenceFile, await referenceText());
await writeFile(contentsFile, await contentsText());
