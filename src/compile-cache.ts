import { enableCompileCache } from 'node:module';
import { fileURLToPath } from 'node:url';

/**
 * Loaded before everything else (`node --import`): keeps what the engine has compiled, so that the next start, and each
 * command, begins in half the time. Beside the packages, where only those write who could change the code itself.
 */
enableCompileCache(fileURLToPath(new URL('../node_modules/.cache/compile', import.meta.url)));
