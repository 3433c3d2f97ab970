import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { root } from '../support/command-line.ts';
import { takeWebhookSample } from '../support/webhook-sample.ts';
import { expectStored, trustedSample } from '../support/webhook-sample-expectations.ts';
import { createWorld } from '../support/world.ts';

const run = promisify(execFile);

/** A library that the text of the guide allows in the place of the one that it prints. */
interface Library {
  readonly language: 'Node' | 'Python';
  /** The name in the import line. */
  readonly module: string;
  /** Installs it into the folder in which it runs, or fails where it is not installed. */
  readonly installed: readonly string[];
}

const libraries: Readonly<Record<string, Library>> = {
  'svix of Node': {
    language: 'Node',
    module: 'svix',
    installed: ['npm', 'install', '--no-audit', '--no-fund', 'svix@2.5.0'],
  },
  'svix of Node, of the former major version': {
    language: 'Node',
    module: 'svix',
    installed: ['npm', 'install', '--no-audit', '--no-fund', 'svix@1.99.1'],
  },
  'standardwebhooks of Python': {
    language: 'Python',
    module: 'standardwebhooks',
    installed: ['python3', '-c', 'import flask, standardwebhooks'],
  },
  'svix of Python': {
    language: 'Python',
    module: 'svix.webhooks',
    installed: ['python3', '-c', 'import flask, svix.webhooks'],
  },
};

describe('drill: the receivers of webhooks in the guide, with other libraries', () => {
  for (const [name, { language, module, installed }] of Object.entries(libraries)) {
    it(`${name} stores each message that has the signature of its secret, and refuses any other`, async function () {
      const folder = await mkdtemp(join(tmpdir(), 'backoffice-library-'));
      const [program = '', ...args] = installed;
      const isInstalled = await run(program, args, { cwd: folder }).catch(() => undefined);
      if (!isInstalled) {
        console.log(`${name} is not installed, and left out`);
        await rm(folder, { recursive: true });
        return this.skip();
      }

      const modules = language === 'Node' ? join(folder, 'node_modules') : root;
      const sample = await takeWebhookSample(language, modules, text =>
        text.replace(
          /(?<=from ')standardwebhooks(?=')|(?<=from )standardwebhooks(?= import)/,
          module,
        ),
      );
      const world = await createWorld({ WEBHOOK_TRUSTED_RECEIVERS: trustedSample(sample) });

      try {
        const acme = await world.login(world.acme);
        const globex = await world.login(world.globex);

        await expectStored(sample, '/backoffice', { acme, globex });
      } finally {
        await world.close();
        await sample.close();
        await rm(folder, { recursive: true });
      }
    });
  }
});
