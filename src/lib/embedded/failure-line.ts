/**
 * The end of a line in which PostgreSQL repeats a message of the system, such as *No space left
 * on device*.
 */
const systemReason = new RegExp(
  [
    'No space left on device',
    'Disk quota exceeded',
    'File too large',
    'Read-only file system',
    'Input/output error',
    'Too many open files( in system)?',
    'Cannot allocate memory',
    'Resource temporarily unavailable',
    'Permission denied',
    'Operation not permitted',
    'Bus error',
  ].join('|'),
);

/**
 * The refusal of a connection while the server starts or ends: it is not the reason why the
 * server did not start.
 */
const refusal = /FATAL: {2}(the database system is|terminating connection|canceling)/;

/**
 * Returns the line of the output of a PostgreSQL program that has the reason of its failure:
 * the last line with a message of the system, or else the last error. The last line is often
 * only a consequence or a hint.
 */
export function failureLine(output: string): string {
  const lines = output.trim().split('\n');
  const failures = lines.filter(line => !refusal.test(line));

  return (
    failures.findLast(line => systemReason.test(line)) ??
    failures.findLast(line => /\b(FATAL|PANIC|error):/.test(line)) ??
    lines.at(-1) ??
    ''
  );
}
