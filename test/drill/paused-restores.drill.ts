import { testPausedRestores } from '../operator/recovery/paused-restores.ts';

describe('drill: restores that are paused or killed', () =>
  testPausedRestores({
    pausedSwap: ['upgrade target', 'close current', 'exchange', 'open current'],
    killedSwap: ['close current', 'exchange', 'open current'],
    pausedBeside: ['create', 'fill', 'complete'],
    pausedLost: ['condemn leftovers', 'create', 'fill', 'require lost', 'exchange', 'serve'],
    purged: ['create', 'fill'],
  }));
