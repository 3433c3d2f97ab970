import { readdir, readFile } from 'node:fs/promises';
import { expect } from 'chai';
import { describeError } from '../src/lib/log/describe-error.ts';
import { explain } from '../src/lib/log/operator-error.ts';
import { errorText } from '../src/operator/command/texts.ts';

const source = new URL('../src/', import.meta.url);

describe('descriptions of errors', () => {
  const secret = 'secret-word';
  const url = `postgresql://operator:${secret}@`;

  it('an error of a URL that cannot be parsed is described without the URL', () => {
    const errors = [
      new Error(`cannot use ${url}db.internal/office`),
      new Error('outer', { cause: new Error(`redis://user:${secret}@redis`) }),
      Object.assign(new Error('statement'), { query: `alter role x password '${secret}'` }),
    ];

    try {
      new URL(`${url}:x`);
    } catch (error) {
      errors.push(error as Error);
    }

    expect(errors).to.have.length(4);
    for (const error of errors) {
      for (const text of [JSON.stringify(describeError(error)), errorText(error), explain(error)]) {
        expect(text).not.to.include(secret);
      }
    }
  });

  it('every logged error is described by describeError, and none is printed as it is', async () => {
    const files = (await readdir(source, { recursive: true })).filter(file => file.endsWith('.ts'));
    for (const file of files) {
      const text = await readFile(new URL(file, source), 'utf8');
      for (const [, value] of text.matchAll(/\berr: (?!\()([^,}]*)/g)) {
        expect(value, file).to.match(/^describeError\(/);
      }
      expect(text, file).not.to.match(/console\.\w+\((error|err|cause)\)/);
    }
  });
});
