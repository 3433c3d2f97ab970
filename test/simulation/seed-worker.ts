import { parentPort, workerData } from 'node:worker_threads';
import { runSeeds, type SeedOrder } from './run-seeds.ts';

// A thread of `simulate.ts`.
await runSeeds(workerData as SeedOrder, result => parentPort?.postMessage(result));
