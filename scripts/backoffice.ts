import { runProgram } from '../src/operator/cli/program.ts';

await runProgram(process.argv.slice(2));
