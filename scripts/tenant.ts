import { tenantCommand } from '../src/fleet/tenant-command.ts';

await tenantCommand().parseAsync();
