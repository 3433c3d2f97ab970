import { randomUUID } from 'node:crypto';
import { mkdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Functions that close or remove what was made, in the order in which it was made. */
const cleanups: (() => Promise<unknown>)[] = [];

/**
 * Makes something before the tests of a `describe`, and closes it after them, what was made
 * last first.
 * @returns it, whose members exist once the tests run
 */
export function use<T extends { close(): Promise<unknown> }>(create: () => Promise<T>): T {
  return madeBetween(before, after, create);
}

/**
 * Makes something of its own for each test of a `describe`, and closes it after that test,
 * what was made last first. It is for tests that leave behind what another one would count.
 * @returns that of the test that runs
 */
export function useEach<T extends { close(): Promise<unknown> }>(create: () => Promise<T>): T {
  return madeBetween(beforeEach, afterEach, create);
}

function madeBetween<T extends { close(): Promise<unknown> }>(
  begin: Mocha.HookFunction,
  end: Mocha.HookFunction,
  create: () => Promise<T>,
): T {
  let made: T;
  begin(async () => {
    made = await create();
    cleanups.push(() => made.close());
  });
  end(() => cleanups.pop()?.());

  return laterObject(() => made);
}

/**
 * Makes an empty folder before the tests of a `describe`, and removes it after them.
 * @returns its path
 */
export function useFolder(folder = join(tmpdir(), `backoffice-test-${randomUUID()}`)): string {
  before(async () => {
    await mkdir(folder, { mode: 0o700 });
    cleanups.push(() => rm(folder, { recursive: true, force: true }));
  });
  after(() => cleanups.pop()?.());
  return folder;
}

/** Returns an object with the members of one that exists later. */
export function laterObject<T extends object>(find: () => T): T {
  return new Proxy({} as T, {
    get: (_, name) => {
      const value = Reflect.get(find(), name);
      return typeof value === 'function' ? value.bind(find()) : value;
    },
    set: (_, name, value) => Reflect.set(find(), name, value),
  });
}
