#!/usr/bin/env bash
# Guess: a JSON schema that zod makes takes what the zod schema takes.
# Found: the flags of a regular expression are left out without an error, so the schema refuses what zod takes.
. "$(dirname "$0")/support.sh"

use_npm zod@4.6.7 ajv@8.20.0
cat > run.js <<'JS'
import Ajv from 'ajv/dist/2020.js';
import * as z from 'zod';

for (const [pattern, value] of [
  [/^eur$/i, 'EUR'],
  [/^b$/m, 'a\nb'],
  [/^a.b$/s, 'a\nb'],
]) {
  const schema = z.string().regex(pattern);
  const { $schema, ...made } = z.toJSONSchema(schema);
  const isValid = new Ajv().compile(made)(value);
  console.log(`${pattern}: zod ${schema.safeParse(value).success}, ${JSON.stringify(made)} ${isValid}`);
}
JS
expect node run.js <<'OUT'
/^eur$/i: zod true, {"type":"string","pattern":"^eur$"} false
/^b$/m: zod true, {"type":"string","pattern":"^b$"} false
/^a.b$/s: zod true, {"type":"string","pattern":"^a.b$"} false
OUT
