// Loaded into worker processes with `--import`, so that no verdict depends on the speed of the
// machine: a worker waits for the counts of Redis however long they take. From SIGUSR2 on,
// which it reports by a line, it waits as long as in production.

const maxReplyMs = 80;
const { setTimeout } = globalThis;
let isPatient = true;
process.once('SIGUSR2', () => {
  isPatient = false;
  process.stdout.write(`${JSON.stringify({ event: 'patience_ended' })}\n`);
});
const setPatiently = (callback: () => void, ms?: number, ...args: unknown[]): NodeJS.Timeout =>
  setTimeout(callback, isPatient && ms === maxReplyMs ? 2 ** 31 - 1 : ms, ...(args as []));
Object.assign(globalThis, { setTimeout: setPatiently });
