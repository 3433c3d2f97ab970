import { expect } from 'chai';
import { runScript } from '../../support/command-line.ts';
import { useWorld } from '../../support/world.ts';

/** Prints the number of modules of MikroORM that the process has loaded at its end. */
const counter = `
  import { registerHooks } from 'node:module';
  let count = 0;
  registerHooks({
    load(url, context, next) {
      if (url.includes('/@mikro-orm/')) count++;
      return next(url, context);
    },
  });
  process.on('exit', () => process.stderr.write('loaded ' + count));`;

describe('modules that a command loads', () => {
  const world = useWorld();

  async function countLoaded(...args: string[]): Promise<number> {
    const preload = `--import data:text/javascript,${encodeURIComponent(counter)}`;
    const environment = { ...world.environment, NODE_OPTIONS: preload };
    const { code, stderr } = await runScript('scripts/backoffice.ts', args, environment);
    expect(code, `${args.join(' ')}: ${stderr}`).to.equal(0);

    return Number(/loaded (\d+)$/.exec(stderr)?.[1]);
  }

  for (const args of [
    ['list'],
    ['show', 'acme'],
    ['processes'],
    ['suspend', 'acme', '--yes'],
    ['resume', 'acme'],
    ['usage'],
    ['logs'],
    ['runs', 'list'],
    ['key', 'list', 'acme'],
    ['user', 'list', 'acme'],
    ['databases'],
  ]) {
    it(`${args.join(' ')} loads no entity manager, which takes 0.3 s of CPU time`, async () => {
      expect(await countLoaded(...args)).to.equal(0);
    });
  }

  it('session list loads the entity manager, so that this test would notice one', async () => {
    expect(await countLoaded('session', 'list', 'acme')).to.be.above(0);
  });
});
