import { readFile } from 'node:fs/promises';
import { defineOperation } from '../command/operation.ts';
import { argument } from '../command/operation-fields.ts';

const shells = ['bash', 'zsh', 'fish'] as const;

const completion = defineOperation({
  name: 'completion',
  help: {
    description:
      'print the script with which a shell completes commands, options, tenants, users and servers',
    examples: [
      'completion bash > ~/.local/share/bash-completion/completions/backoffice',
      'completion fish > ~/.config/fish/completions/backoffice.fish',
    ],
    more: `The program must be in PATH under the name backoffice: ln -s "$PWD/bin/backoffice" ~/.local/bin/
Then the start file of the shell loads the script:

  source <(backoffice completion bash)        in ~/.bashrc
  source <(backoffice completion zsh)         in ~/.zshrc, after compinit
  backoffice completion fish | source         in ~/.config/fish/config.fish`,
  },
  fields: { shell: argument('text', { choices: shells }) },
  effect: 'reads',
  handling: { control: 'unused', result: 'text' },
  async run({ shell }, { output }) {
    const script = await readFile(
      new URL(`./completion/backoffice.${shell}`, import.meta.url),
      'utf8',
    );
    output.text(() => script.trimEnd());
  },
});

export const operations = [completion];
