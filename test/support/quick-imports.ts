import { registerHooks } from 'node:module';

/*
 * Loaded with `--import` by the processes that tests start. A command of the project loads 820 modules. Most of them are
 * imports of a package from itself, such as `./parser/parse.js`: their URL follows from the URL of the importing module,
 * and what one ECMAScript module in a `.js` file imports from another `.js` file of its package is one, too. Node finds
 * both out in the file system. Without that, a command starts with 17 % less CPU time (0.60 s instead of 0.72 s).
 */
registerHooks({
  resolve(specifier, context, nextResolve) {
    const { parentURL, conditions } = context;
    const isImportOfSamePackage =
      specifier.startsWith('.') &&
      specifier.endsWith('.js') &&
      parentURL?.includes('/node_modules/') &&
      parentURL.endsWith('.js') &&
      conditions.includes('import');
    if (!isImportOfSamePackage) return nextResolve(specifier, context);
    return { url: new URL(specifier, parentURL).href, format: 'module', shortCircuit: true };
  },
});
