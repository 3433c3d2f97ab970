import { OperatorError } from '../../log/operator-error.ts';

/** Returns the URL of a PostgreSQL server that an operator has given. @throws {OperatorError} unless it is one */
export function parseServerUrl(text: string): string {
  const url = text.trim();
  if (!URL.canParse(url) || !/^postgres(ql)?:$/.test(new URL(url).protocol))
    throw new OperatorError('Give the URL of the server on stdin, beginning with postgresql://', { usage: true });
  return url;
}
