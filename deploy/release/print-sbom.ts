import { join } from 'node:path';
import { makeSbom } from './sbom.ts';

// Prints the packages that the service needs, in the format of CycloneDX: npm run -s sbom

process.stdout.write(await makeSbom(join(import.meta.dirname, '../..')));
