import { runProgram } from '../src/operator/cli/program.ts';

// The same as `backoffice.ts`, for `npm run tenant`.
await runProgram(process.argv.slice(2));
