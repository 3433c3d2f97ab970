import { runProgram } from '../src/operator/cli/program.ts';

await runProgram(['control', ...process.argv.slice(2)]);
