// Loaded before everything else with `node --import`. Plain JavaScript, because an old Node
// cannot load a TypeScript file.

import { accessSync, constants, existsSync } from 'node:fs';
import module from 'node:module';
import { fileURLToPath } from 'node:url';

const packages = fileURLToPath(new URL('../../../node_modules/', import.meta.url));

if (!existsSync(`${packages}koa`)) {
  end('The packages of the service are not installed: run npm ci in its folder.');
}

if (!process.features.typescript) {
  end(
    `This is Node ${process.versions.node}, and the service needs Node 22.18 or newer: ${remedy()}.`,
  );
}

/** The advice on how another Node runs the service. */
function remedy() {
  const [program] = ['x64', 'arm64']
    .map(machine => `${packages}node-linux-${machine}/bin/node`)
    .filter(existsSync);
  if (!program) return 'install Node 24';

  try {
    accessSync(program, constants.X_OK);
  } catch {
    return `${program} may not be executed, as on a file system with noexec: move the project, or install Node 24`;
  }
  return 'start it with npm or with bin/backoffice, which use the Node 24 that npm ci has installed';
}

/**
 * Ends the process, and says why.
 * @param {string} text
 */
function end(text) {
  console.error(text);
  process.exit(1);
}

// Caches compiled code on disk, and the JavaScript of TypeScript files. That halves the
// start-up time of the service and takes two thirds from that of a command. It comes before the
// first TypeScript file: for a single file that is not in the cache, Node loads its compiler,
// which takes 0.1 s of CPU time. The cache lies inside `node_modules`: a process that can write
// there could change the code itself. Its entries are found by paths relative to it, so a copy
// of the project that shares `node_modules`, or one that was moved, uses them; Node before
// 24.12 finds them by absolute paths.
process.env.NODE_COMPILE_CACHE_PORTABLE = '1';
module.enableCompileCache(`${packages}.cache/compile`);

// Linux gives a process 1, such as that of a container, no signal that it does not handle:
// without this, the first SIGTERM would be lost while the modules load, and the container would
// be killed when its time to stop has passed.
if (process.pid === 1) {
  for (const [signal, code] of [
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ]) {
    const end = () => process.exit(code);
    process.once(signal, end);
    process.on('newListener', name => {
      if (name === signal) {
        process.off(signal, end);
      }
    });
  }
}
