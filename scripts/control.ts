import { controlCommand } from '../src/operator/cli/control-command.ts';

await controlCommand().parseAsync();
