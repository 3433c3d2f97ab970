import { OperatorError } from '../../lib/log/operator-error.ts';
import { readId } from '../../lib/runtime/id-text.ts';

/** Describes a program to an operator: names are not unique, and numbers say nothing. */
export function programText({ id, name }: { readonly id: number; readonly name: string }): string {
  return `${id} (${name})`;
}

/** Parses the number of a program. */
export function parseProgram(value: string): number {
  const id = readId(value);
  if (id === undefined) {
    throw new OperatorError('Give the number of a program, as program list shows it.');
  }
  return id;
}
