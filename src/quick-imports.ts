import { registerHooks } from 'node:module';

/** Packages of many modules, all of which are ECMAScript modules and import each other as `./name.js`. */
const packages = /\/node_modules\/(@mikro-orm\/[^/]+|kysely|zod)\/(?!.*node_modules\/)/;

/** In place of `node:child_process` in commander, which starts programs with it for subcommands that are programs. */
const emptyModule = 'data:text/javascript,export default {}';

/**
 * Resolves imports without the file system where the URL of the importing module determines the result: relative
 * imports inside this project and inside `packages`. Node looks for the file, its real path and its package.json, which
 * takes a quarter of the CPU time in which a command starts. Leaves out a module that commander does not need here, and
 * whose parts take a sixth of the CPU time of a help or completion.
 */
registerHooks({
  resolve(specifier, context, nextResolve) {
    if (specifier === 'node:child_process' && context.parentURL?.includes('/node_modules/commander/'))
      return { url: emptyModule, format: 'module', shortCircuit: true };
    const format = context.conditions.includes('import') ? formatOf(specifier, context.parentURL ?? '') : undefined;
    if (format === undefined) return nextResolve(specifier, context);
    return { url: new URL(specifier, context.parentURL).href, format, shortCircuit: true };
  },
});

// An `import` of `node:http` reads each of its properties, and that of these three loads the client for WebSockets and
// `fetch`, which takes 50 to 150 ms of CPU time. Nothing here uses them; the globals of these names remain.
const http: Partial<typeof import('node:http')> = process.getBuiltinModule('node:http');
for (const name of ['WebSocket', 'CloseEvent', 'MessageEvent'] as const) delete http[name];

function formatOf(specifier: string, parent: string): string | undefined {
  if (!specifier.startsWith('.')) return undefined;
  if (specifier.endsWith('.ts') && !parent.includes('/node_modules/')) return 'module-typescript';
  return specifier.endsWith('.js') && packages.test(parent) ? 'module' : undefined;
}
