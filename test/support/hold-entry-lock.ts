import { EntryLock } from '../../src/control/entry-lock.ts';

await new EntryLock(process.argv[2] ?? '').acquire();
console.info('taken');
setInterval(() => {}, 60_000);
