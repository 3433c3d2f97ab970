import { testPausedRestores } from './paused-restores.ts';

/** Of each kind of run, the steps at which it could do most harm. The drill takes the others too. */
describe('restores that are paused or killed', () =>
  testPausedRestores({
    pausedSwap: ['exchange', 'open current'],
    killedSwap: ['open current'],
    pausedBeside: ['fill', 'complete'],
    pausedLost: ['exchange', 'serve'],
    purged: ['create'],
  }));
