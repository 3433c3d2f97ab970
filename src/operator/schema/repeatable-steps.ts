import type { SchemaStep } from './schema-steps.ts';

/**
 * Returns the names of the migrations of which it is known that they make equal schemas of equal ones, whatever rows the
 * databases have: their statements only define objects, or are `grant` of `sql.ts`.
 * @param steps the migrations of this build, whose functions may do anything
 */
export function repeatableSteps(steps: readonly SchemaStep[]): ReadonlySet<string> {
  const functions = steps.flatMap(({ up }) => up.flatMap(functionsOf));
  const isRepeatable = ({ up }: SchemaStep): boolean =>
    up.every(text => isUnderstood(text) && statementsOf(text).every(statement => isDefinition(statement, functions)));
  return new Set(steps.filter(isRepeatable).map(({ name }) => name));
}

const functionNames = /create\s+(?:or\s+replace\s+)?(?:function|procedure)\s+(?:public\.)?"?(\w+)/gi;

function functionsOf(text: string): string[] {
  return [...text.matchAll(functionNames)].map(([, name]) => (name ?? '').toLowerCase());
}

/** A literal in dollars or in quotes. */
const literal = String.raw`\$(\w*)\$[\s\S]*?\$\1\$|'(?:[^']|'')*'`;
const literals = new RegExp(literal, 'g');
const statements = new RegExp(`(?:${literal}|[^;])+`, 'g');
/** Comments, names in quotes, and literals with a prefix such as `E`. */
const unclear = /--|\/\*|"|[\w&]''/;

function isUnderstood(text: string): boolean {
  return !unclear.test(text.replace(literals, `''`));
}

/** Splits SQL at the semicolons outside of literals. */
function statementsOf(text: string): string[] {
  return (text.match(statements) ?? []).map(statement => statement.trim()).filter(statement => statement !== '');
}

/** The block of `grant` of `sql.ts`. The name of the group is the same in all databases of a server. */
const grantBlock =
  /^do \$\$ begin\s+execute format\('grant [\w\s,]+ on [\w\s,]+ to %I', current_setting\('app\.tenant_group'\)\);\s+end \$\$$/;

const definitions = [
  /^create (?:or replace )?(?:function|procedure|trigger)\b/,
  /^create (?:type|domain|sequence|policy)\b/,
  /^create table (?!.*\bas\b)/,
  /^create (?:unique )?index\b/,
  /^alter (?:table|index|sequence|function|type|policy|trigger)\b/,
  /^drop (?:index|sequence|function|procedure|type|domain|trigger|policy)\b/,
  /^(?:grant|revoke|comment on)\b/,
];
/** Drops the sequences of the column too, and the digest does not contain which those are. */
const dropsColumn = /^alter table\b.*\bdrop (?!constraint\b|default\b|not null\b)/;
/** These compute values for the rows of a table. */
const readsRows = /^(?:alter table|create (?:unique )?index)\b/;

function isDefinition(statement: string, functions: readonly string[]): boolean {
  if (grantBlock.test(statement)) return true;
  const text = statement
    .replace(literals, `''`)
    .toLowerCase()
    .replace(/\s+/g, ' ')
    .replace(/generated (?:always|by default) as/g, 'generated');
  if (!definitions.some(definition => definition.test(text)) || dropsColumn.test(text)) return false;
  return !readsRows.test(text) || !text.split(/\W+/).some(word => functions.includes(word));
}
