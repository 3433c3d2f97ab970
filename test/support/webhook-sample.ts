import { mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type RunningScript, root, startProgram } from './command-line.ts';
import { eventually } from './eventually.ts';
import { freePort } from './free-port.ts';

/** A language of the samples of docs/guide/webhooks.md. */
interface SampleLanguage {
  /** The word after the fence of its code. */
  readonly fence: string;
  readonly file: string;
  readonly command: readonly string[];
  /** The function `store`, which the sample leaves to its reader: a line for each message. */
  readonly store: string;
  /** Returns the sample at a port of this machine. */
  readonly listen: (sample: string, port: number) => string;
}

const sampleLanguages = {
  Node: {
    fence: 'ts',
    file: 'receiver.ts',
    command: [process.execPath],
    store: `import { appendFile } from 'node:fs/promises';
const store = (id: unknown, message: unknown) =>
  appendFile(process.env.STORED ?? '', JSON.stringify({ id, message }) + '\\n');
`,
    listen: (sample, port) => sample.replace('.listen(8080)', `.listen(${port}, '127.0.0.1')`),
  },
  Python: {
    fence: 'python',
    file: 'receiver.py',
    command: ['python3'],
    store: `def store(id, message):
    with open(os.environ["STORED"], "a") as file:
        file.write(json.dumps({"id": id, "message": message}) + "\\n")
`,
    listen: (sample, port) => `${sample}\napp.run(host="127.0.0.1", port=${port})\n`,
  },
} satisfies Record<string, SampleLanguage>;

/** A receiver as the guide prints it, with a folder of its own. */
export interface WebhookSample {
  /** Its address, without a slash at the end. */
  readonly url: string;
  /** Starts it with the secret of a webhook, and waits until it accepts connections. */
  start(secret: string): Promise<void>;
  /** The messages that it has stored, in their order. */
  stored(): Promise<{ id: string; message?: { type: string; data: { Key: string } } }[]>;
  close(): Promise<void>;
}

/**
 * Takes the sample of a language from the guide.
 * @param modules the folder with the packages of Node that it imports
 * @param change changes its text, such as the name of the library
 */
export async function takeWebhookSample(
  language: keyof typeof sampleLanguages,
  modules = join(root, 'node_modules'),
  change = (sample: string): string => sample,
): Promise<WebhookSample> {
  const { fence, file, command, store, listen }: SampleLanguage = sampleLanguages[language];
  const guide = await readFile(join(root, 'docs/guide/webhooks.md'), 'utf8');
  const [, sample] = new RegExp(`^\`\`\`${fence}\\n(.*?)^\`\`\`$`, 'ms').exec(guide) ?? [];
  if (sample === undefined) throw new Error(`the guide has no sample for ${language}`);

  const folder = await mkdtemp(join(tmpdir(), 'backoffice-receiver-'));
  const port = await freePort();
  const stored = join(folder, 'stored');
  await writeFile(stored, '');
  await writeFile(join(folder, 'package.json'), '{"type": "module"}');
  await symlink(modules, join(folder, 'node_modules'));
  await writeFile(join(folder, file), `${store}${listen(change(sample), port)}`);

  let program: RunningScript | undefined;
  const url = `http://127.0.0.1:${port}`;
  return {
    url,
    start: async secret => {
      const [name = '', ...options] = command;
      const environment = { WEBHOOK_SECRET: secret, STORED: stored, PATH: process.env.PATH ?? '' };
      program = startProgram(name, [...options, join(folder, file)], environment);

      await eventually(async () => {
        if (program && program.process.exitCode !== null) throw new Error(program.output.stderr);
        return (await fetch(url).catch(() => undefined)) !== undefined;
      }, 30_000);
    },
    stored: async () =>
      (await readFile(stored, 'utf8'))
        .split('\n')
        .filter(line => line !== '')
        .map(line => JSON.parse(line)),
    close: async () => {
      program?.process.kill('SIGKILL');
      await program?.ended;
      await rm(folder, { recursive: true });
    },
  };
}
