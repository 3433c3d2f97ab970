import { EntryTurn } from '../../src/control/entry-turn.ts';

await new EntryTurn(process.argv[2] ?? '').take();
console.info('taken');
setInterval(() => {}, 60_000);
