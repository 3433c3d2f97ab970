import { routesToRead } from '../src/docs/document.ts';
import { writeDocument } from '../src/docs/openapi.ts';

process.stdout.write(writeDocument(routesToRead()));
