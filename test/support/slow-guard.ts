// Loaded into a command and the processes that it starts: its guard process starts three
// seconds later, as on a busy machine.

if (process.argv[1]?.endsWith('guard-process.ts')) {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 3_000);
}
