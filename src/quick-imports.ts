import { registerHooks } from 'node:module';

/** Packages of many modules, all of which are ECMAScript modules and import each other as `./name.js`. */
const packages = /\/node_modules\/(@mikro-orm\/[^/]+|kysely|zod)\/(?!.*node_modules\/)/;

/**
 * Resolves imports without the file system where the URL of the importing module determines the result: relative
 * imports inside this project and inside `packages`. Node looks for the file, its real path and its package.json, which
 * takes a quarter of the CPU time in which a command starts.
 */
registerHooks({
  resolve(specifier, context, nextResolve) {
    const format = context.conditions.includes('import') ? formatOf(specifier, context.parentURL ?? '') : undefined;
    if (format === undefined) return nextResolve(specifier, context);
    return { url: new URL(specifier, context.parentURL).href, format, shortCircuit: true };
  },
});

function formatOf(specifier: string, parent: string): string | undefined {
  if (!specifier.startsWith('.')) return undefined;
  if (specifier.endsWith('.ts') && !parent.includes('/node_modules/')) return 'module-typescript';
  return specifier.endsWith('.js') && packages.test(parent) ? 'module' : undefined;
}
