import { tenantCommand } from '../src/operator/cli/tenant-command.ts';

await tenantCommand().parseAsync();
