import { readEmail } from '../../lib/http/request/email.ts';
import { lengths, text } from '../../lib/http/request/fields.ts';
import { OperatorError } from '../../lib/log/operator-error.ts';

/**
 * Returns a name as it is stored.
 * @param what the noun of the name, for the error
 * @throws {OperatorError} when the API would refuse it, too
 */
export function requireName(what: string, name: string): string {
  const parsed = text({ max: lengths.name }).safeParse(name);
  if (parsed.success) return parsed.data;
  throw new OperatorError(`The ${what} ${parsed.error.issues[0]?.message}`, { usage: true });
}

/**
 * Returns an e-mail address as it is stored.
 * @throws {OperatorError} when the API would refuse it, too
 */
export function requireEmail(text: string): string {
  const { address, error } = readEmail(text);
  if (error) throw new OperatorError(`The e-mail address ${error.message}`, { usage: true });
  return address;
}
