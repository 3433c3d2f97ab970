import { readFileSync } from 'node:fs';

const manifest = new URL('../../../package.json', import.meta.url);

/** The version of this build, as `package.json` has it. */
export const buildVersion: string = JSON.parse(readFileSync(manifest, 'utf8')).version;
