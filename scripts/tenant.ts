import { runProgram } from '../src/operator/cli/program.ts';

// The same as `backoffice.ts`, under an earlier name, by which tests and benches run it.
await runProgram(process.argv.slice(2));
