import { openApiText } from '../src/docs/openapi-document.ts';
import { documentedRoutes } from '../src/routes.ts';

process.stdout.write(openApiText(documentedRoutes()));
