import { readFile } from 'node:fs/promises';
import { expect } from 'chai';
import { databaseProtocol } from '../../../src/operator/databases/protocol/database-protocol.ts';

const file = new URL('../../../src/operator/lifecycle/provision.ts', import.meta.url);

describe('the steps of a provision', () => {
  it('provision.ts names the steps to the database of a new tenant in the order in which a run takes them', async () => {
    const text = await readFile(file, 'utf8');

    const [before = ''] = text.split('async function makeDatabase(');
    const comment = before.slice(before.lastIndexOf('/**'));
    const named = [...comment.matchAll(/^ \* \d\. `([^`]+)`/gm)].map(([, step]) => step);

    expect(named).to.deep.equal([...databaseProtocol('provision', false)]);
  });
});
