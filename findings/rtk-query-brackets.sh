#!/usr/bin/env bash
# Guess: each query parameter of a document is an argument of what @rtk-query/codegen-openapi makes.
# Found: parameters whose names differ in brackets only become one argument, an object, and the request has one parameter without brackets.
. "$(dirname "$0")/support.sh"

use_npm @rtk-query/codegen-openapi@2.2.0 typescript@5.9.3
cat > openapi.json <<'JSON'
{
  "openapi": "3.0.3",
  "info": { "title": "Stock", "version": "1" },
  "paths": {
    "/items": {
      "get": {
        "operationId": "getItems",
        "parameters": [
          { "name": "filter[code]", "in": "query", "schema": { "type": "string" } },
          { "name": "filter[rate]", "in": "query", "schema": { "type": "integer" } },
          { "name": "page", "in": "query", "schema": { "type": "integer" } }
        ],
        "responses": { "200": { "description": "Items" } }
      }
    }
  }
}
JSON
echo "export const emptyApi = undefined as never;" > empty.ts
echo '{ "schemaFile": "openapi.json", "apiFile": "./empty.ts", "apiImport": "emptyApi", "outputFile": "made.ts" }' > config.json
npx --no -- rtk-query-codegen-openapi config.json > /dev/null 2>&1
expect sed -n '/params:/,/},/p; /ApiArg = {/,/^}/p' made.ts <<'OUT'
        params: {
          filter: queryArg.filter,
          page: queryArg.page,
        },
export type GetItemsApiArg = {
  filter?: {
    code?: string;
    rate?: number;
  };
  page?: number;
};
OUT
