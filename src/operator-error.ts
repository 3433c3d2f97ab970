/** Something an operator can mend: shown as one line, without a stack. `usage` errors exit with 2. */
export class OperatorError extends Error {
  override name = 'OperatorError';
  readonly usage: boolean;

  constructor(message: string, { usage = false, cause }: { usage?: boolean; cause?: unknown } = {}) {
    super(message, { cause });
    this.usage = usage;
  }
}
