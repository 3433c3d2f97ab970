import { controlCommand } from '../src/fleet/control-command.ts';

await controlCommand().parseAsync();
