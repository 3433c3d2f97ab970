import { openApiText } from '../src/service/pages/openapi-document.ts';
import { documentedRoutes } from '../src/service/routes.ts';

process.stdout.write(openApiText(documentedRoutes()));
