import { readFile } from 'node:fs/promises';
import { Argument, type Command } from 'commander';
import { printText } from './output.ts';

const shells = ['bash', 'zsh', 'fish'] as const;
const help = `
The program must be in PATH under the name backoffice: ln -s "$PWD/bin/backoffice" ~/.local/bin/
Then the start file of the shell loads the script:

  source <(backoffice completion bash)        in ~/.bashrc
  source <(backoffice completion zsh)         in ~/.zshrc, after compinit
  backoffice completion fish | source         in ~/.config/fish/config.fish`;

/** Adds `completion`. */
export function addCompletionCommand(program: Command): void {
  program
    .command('completion')
    .description('print the script with which a shell completes commands, options, tenants, users and servers')
    .addArgument(new Argument('<shell>').choices(shells))
    .addHelpText('after', help)
    .action(async (shell: (typeof shells)[number]) => {
      const script = await readFile(new URL(`../completion/backoffice.${shell}`, import.meta.url), 'utf8');
      printText({}, () => script.trimEnd());
    });
}
