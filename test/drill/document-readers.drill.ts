import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { root } from '../support/command-line.ts';
import { useLogin, useWorld } from '../support/world.ts';

const run = promisify(execFile);

/** A program that reads the OpenAPI document, and calls the service by it. */
interface Reader {
  /** Its name and version in the table of the guide. */
  readonly name: string;
  readonly packages: readonly string[];
  /** Makes code of `openapi.json`; without it, the program reads the document when it runs. */
  readonly generate?: readonly string[];
  /** Prints the codes that it gets. `SERVICE` is the address, `TOKEN` an access token. */
  readonly program: string;
}

const query = `const query = { 'filter[Code]': ['STD', 'RED', 'ZER'], 'filter[Rate][gte]': 5, sort: ['-Rate', 'Code'] };`;
const access = `const url = process.env.SERVICE;
const headers = { Authorization: 'Bearer ' + process.env.TOKEN };`;
const print = 'console.log(JSON.stringify(list.map(({ Code }) => Code)));';

const readers: readonly Reader[] = [
  {
    name: 'openapi-fetch 0.17',
    packages: ['openapi-fetch@0.17.0'],
    program: `import createClient from 'openapi-fetch';
${access} ${query}
const { data: list } = await createClient({ baseUrl: url, headers }).GET('/api/v1/TaxCodes', { params: { query } });
${print}`,
  },
  {
    name: 'hey-api 0.99',
    packages: ['@hey-api/openapi-ts@0.99.0', 'typescript@5.9.3'],
    generate: ['openapi-ts', '-i', 'openapi.json', '-o', 'made', '-c', '@hey-api/client-fetch'],
    program: `import { getTaxCodes } from './made/index.ts';
${access} ${query}
const { data: list } = await getTaxCodes({ baseUrl: url, headers, query });
${print}`,
  },
  {
    name: 'orval 8.38',
    packages: ['orval@8.38.0'],
    generate: ['orval', '--input', 'openapi.json', '--output', 'made.ts', '--client', 'fetch'],
    program: `import { getGetTaxCodesUrl } from './made.ts';
${access} ${query}
const list = await (await fetch(url + getGetTaxCodesUrl(query), { headers })).json();
${print}`,
  },
  {
    name: 'swagger-typescript-api 13.13',
    packages: ['swagger-typescript-api@13.13.0'],
    generate: ['swagger-typescript-api', 'generate', '-p', 'openapi.json', '-n', 'made.ts'],
    program: `import { Api } from './made.ts';
${access} ${query}
const { data: list } = await new Api({ baseUrl: url }).api.getTaxCodes(query, { headers });
${print}`,
  },
  {
    name: 'swagger-client 3.38',
    packages: ['swagger-client@3.38.4'],
    program: `import { readFileSync } from 'node:fs';
import SwaggerClient from 'swagger-client';
${access} ${query}
const spec = { ...JSON.parse(readFileSync('openapi.json', 'utf8')), servers: [{ url }] };
const requestInterceptor = request => Object.assign(request, { headers: { ...request.headers, ...headers } });
const { body: list } = await SwaggerClient.execute({ spec, operationId: 'getTaxCodes', parameters: query, requestInterceptor });
${print}`,
  },
  {
    name: 'oazapfts 7.5',
    packages: ['oazapfts@7.5.0'],
    generate: ['oazapfts', 'openapi.json', 'made.ts'],
    program: `import { defaults, getTaxCodes } from './made.ts';
${access}
Object.assign(defaults, { baseUrl: url, headers });
const found = await getTaxCodes({ filterCode: ['STD', 'RED', 'ZER'], filterRateGte: 5, sort: ['-Rate', 'Code'] });
const list = Array.isArray(found) ? found : found.data;
${print}`,
  },
];

describe('drill: filters and sorts by programs that read the OpenAPI document', () => {
  const world = useWorld();
  const acme = useLogin(world, 'acme');
  const globex = useLogin(world, 'globex');
  let folder: string;

  before(async () => {
    for (const [Code, Rate] of [
      ['RED', 10],
      ['STD', 20],
      ['ZER', 0],
      ['TOP', 30],
    ] as const) {
      await acme.post('/api/v1/TaxCodes', { Code, Name: 'Rate', Rate });
      await globex.post('/api/v1/TaxCodes', { Code, Name: 'Rate', Rate: 50 });
    }
  });

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'backoffice-reader-'));
  });

  afterEach(() => rm(folder, { recursive: true }));

  for (const { name, packages, generate, program } of readers) {
    it(`${name} gets the records with one of several codes and a rate, sorted by two fields`, async function () {
      this.timeout(300_000);
      const at = { cwd: folder, env: { ...process.env, TOKEN: String(acme.tokens?.accessToken) } };
      const document = await (await fetch(`${world.url}/docs/openapi.json`)).text();
      await writeFile(join(folder, 'openapi.json'), document);
      await writeFile(join(folder, 'package.json'), '{"type": "module"}');
      await writeFile(join(folder, 'call.mjs'), program);
      const installed = ['install', '--no-audit', '--no-fund', '--ignore-scripts', 'tsx@4'];
      await run('npm', [...installed, ...packages], at).catch(() => this.skip());

      if (generate) await run('npx', ['--no', '--', ...generate], at);
      const { stdout } = await run('npx', ['--no', '--', 'tsx', 'call.mjs'], {
        ...at,
        env: { ...at.env, SERVICE: world.url },
      });

      expect(JSON.parse(stdout.trim().split('\n').at(-1) ?? '')).to.deep.equal(['STD', 'RED']);
      expect(await readFile(join(root, 'docs/guide/first-call.md'), 'utf8')).to.include(name);
    });
  }
});
