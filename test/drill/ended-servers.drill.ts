import { expect } from 'chai';
import { copyingCommands, EndedCommands, faultOfEnd } from '../support/ended-commands.ts';
import { use } from '../support/use.ts';

const points = 30;

describe('commands that copy, when their server ends', function () {
  this.timeout(1_800_000);
  const ended = use(EndedCommands.start);

  for (const name of copyingCommands) {
    it(`${name} ends with a sentence and a code of 0 or 1, whenever its server ends for a moment or for good, and works afterwards`, async () => {
      const { packets } = await ended.runWell(name);
      const faults: string[] = [];

      for (let point = 0; point < points; point++) {
        const at = 1 + Math.floor((point * packets) / points);

        for (const refusing of [false, true]) {
          const fault = faultOfEnd(await ended.run(name, at, refusing));
          if (fault) faults.push(`packet ${at} of ${packets}, refusing ${refusing}: ${fault}`);
        }
      }

      expect(faults).to.deep.equal([]);
      await ended.runWell(name);
    });
  }
});
