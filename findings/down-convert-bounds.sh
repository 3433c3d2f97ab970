#!/usr/bin/env bash
# Guess: openapi-down-convert makes a valid document of OpenAPI 3.0 of a valid one of 3.1, or says that it cannot.
# Found: an exclusive bound, several types, a constant null and the schemas of a tuple stay as they are, and the document of 3.0 is invalid.
. "$(dirname "$0")/support.sh"

use_npm @apiture/openapi-down-convert@0.14.2 @seriousme/openapi-schema-validator@2.11.0
cat > run.js <<'JS'
import { Converter } from '@apiture/openapi-down-convert';
import { Validator } from '@seriousme/openapi-schema-validator';

for (const schema of [
  { type: ['integer', 'null'] },
  { const: 'a' },
  { type: 'number', exclusiveMinimum: 0 },
  { type: ['string', 'integer'] },
  { const: null },
  { type: 'array', prefixItems: [{ type: 'string' }] },
]) {
  const info = { title: 'One schema', version: '1' };
  const document = { openapi: '3.1.0', info, paths: {}, components: { schemas: { Made: schema } } };
  const before = await new Validator().validate(structuredClone(document));
  const converted = new Converter(document).convert();
  const { valid } = await new Validator().validate(structuredClone(converted));
  console.log(before.valid, JSON.stringify(schema), JSON.stringify(converted.components.schemas.Made), valid);
}
JS
expect node run.js <<'OUT'
true {"type":["integer","null"]} {"type":"integer","nullable":true} true
true {"const":"a"} {"enum":["a"]} true
true {"type":"number","exclusiveMinimum":0} {"type":"number","exclusiveMinimum":0} false
true {"type":["string","integer"]} {"type":["string","integer"]} false
true {"const":null} {"const":null} false
true {"type":"array","prefixItems":[{"type":"string"}]} {"type":"array","prefixItems":[{"type":"string"}]} false
OUT
