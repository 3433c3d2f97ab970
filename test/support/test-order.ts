import { createHash } from 'node:crypto';
import { relative } from 'node:path';
import type { Context, Suite } from 'mocha';
import { Random } from '../simulation/random.ts';
import { root } from './command-line.ts';

/**
 * Hooks of mocha that run the tests of each file in the order that `TEST_ORDER` names:
 * `reversed`, `shuffled`, or the seed of an earlier shuffled run. Without it, tests run as they
 * stand. The order of a file depends on the seed and the file only, so a file that is run alone
 * with the seed of a run has the order that it had in that run.
 *
 * Mocha runs the tests of a `describe` before the suites in it, so these never mix.
 */
export const orderTests = {
  beforeAll(this: Context): void {
    const order = process.env.TEST_ORDER;
    const suite = this.test?.parent;
    if (!order || !suite) return;

    if (order === 'reversed') {
      orderSuite(suite, () => items => items.reverse());
    } else {
      orderSuite(suite, file => shuffle(new Random(seedOf(file, order))));
    }
  },
};

type Order = <Item>(items: Item[]) => void;

/** Draws the seed of a shuffled run, prints it, and gives it to the workers of the run. */
export function drawTestOrder(): void {
  const order = process.env.TEST_ORDER;
  if (order === undefined || order === 'reversed') return;

  if (order === 'shuffled') {
    process.env.TEST_ORDER = String(Math.floor(Math.random() * 2 ** 32));
  } else if (!/^\d+$/.test(order)) {
    throw new Error(`TEST_ORDER is reversed, shuffled, or a seed, not ${order}`);
  }
  process.stdout.write(`  Tests are shuffled: TEST_ORDER=${process.env.TEST_ORDER} repeats it.\n`);
}

/** Orders the files that a process runs, and the tests and the suites of each. */
function orderSuite(files: Suite, orderOf: (file: string) => Order): void {
  orderOf('')(files.suites);

  for (const suite of files.suites) {
    orderDescribe(suite, orderOf(relative(root, suite.file ?? '')));
  }
}

function orderDescribe(suite: Suite, order: Order): void {
  order(suite.tests);
  order(suite.suites);

  for (const child of suite.suites) {
    orderDescribe(child, order);
  }
}

function seedOf(file: string, seed: string): number {
  return createHash('sha256').update(`${seed} ${file}`).digest().readUInt32BE();
}

/** Fisher and Yates' shuffle. */
function shuffle(random: Random): Order {
  return items => {
    for (let last = items.length - 1; last > 0; last -= 1) {
      const drawn = random.integer(0, last);
      [items[last], items[drawn]] = [items[drawn] as never, items[last] as never];
    }
  };
}
