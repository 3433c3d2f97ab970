import { expect } from 'chai';
import { copyingCommands, EndedCommands, faultOfEnd } from '../../support/ended-commands.ts';
import { use } from '../../support/use.ts';

/** Parts of the packets of a command, in the second half of which it copies rows. */
const parts = [0.3, 0.55, 0.7];

describe('commands that copy, when their server ends', () => {
  const ended = use(EndedCommands.start);

  for (const name of copyingCommands) {
    it(`${name} ends with a sentence and a code of 0 or 1 when its server ends in the middle, and works afterwards`, async () => {
      const { packets } = await ended.runWell(name);

      for (const [index, part] of parts.entries()) {
        const result = await ended.run(name, Math.round(part * packets), index === 1);
        expect(faultOfEnd(result), `packet ${part * packets} of ${packets}`).to.equal(undefined);
      }

      await ended.runWell(name);
    });
  }

  it('move ends with a sentence and a code of 1 when its server ends while its guard process starts', async () => {
    const result = await ended.run('move', Number.POSITIVE_INFINITY, false, true);

    expect(result.code, result.stdout).to.equal(1);
    expect(faultOfEnd(result)).to.equal(undefined);
    await ended.runWell('move');
  });
});
