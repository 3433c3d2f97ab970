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
  /** Runs the program from its file; without it, Node does. The last argument is the file. */
  readonly command?: readonly string[];
  /** Fails where the program is not installed. */
  readonly installed?: readonly string[];
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
  {
    name: 'openapi-typescript-codegen 0.31',
    packages: ['openapi-typescript-codegen@0.31.0'],
    generate: ['openapi', '--input', 'openapi.json', '--output', 'made', '--useOptions'],
    program: `import { OpenAPI, TaxCodeService } from './made/index.ts';
OpenAPI.BASE = process.env.SERVICE;
OpenAPI.TOKEN = process.env.TOKEN;
const query = { filterCode: ['STD', 'RED', 'ZER'], filterRateGte: 5, sort: ['-Rate', 'Code'] };
const list = await TaxCodeService.getTaxCodes(query);
${print}`,
  },
  {
    name: 'openapi-client-axios 7.9',
    packages: ['openapi-client-axios@7.9.1', 'axios@1.21.1'],
    program: `import { readFileSync } from 'node:fs';
import { OpenAPIClientAxios } from 'openapi-client-axios';
${access} ${query}
const definition = JSON.parse(readFileSync('openapi.json', 'utf8'));
const axiosConfigDefaults = { headers };
const api = new OpenAPIClientAxios({ definition, withServer: { url }, axiosConfigDefaults });
const { data: list } = await (await api.init()).getTaxCodes(query);
${print}`,
  },
  {
    name: 'OpenAPI::Client 1.07 of Perl',
    packages: ['@apiture/openapi-down-convert@0.14.2'],
    generate: ['openapi-down-convert', '--input', 'openapi.json', '--output', 'openapi-3.0.json'],
    installed: ['perl', '-MOpenAPI::Client', '-e', ''],
    command: ['perl', 'call.pl'],
    program: `use Mojo::Base -strict;
use Mojo::JSON 'encode_json';
use OpenAPI::Client;

my $client = OpenAPI::Client->new('openapi-3.0.json', base_url => $ENV{SERVICE});
$client->ua->on(start => sub { $_[1]->req->headers->authorization("Bearer $ENV{TOKEN}") });
my $query = { 'filter[Code]' => ['STD', 'RED', 'ZER'], 'filter[Rate][gte]' => 5, sort => ['-Rate', 'Code'] };
my $list = $client->call(getTaxCodes => $query)->res->json;
say encode_json [map { $_->{Code} } @$list];`,
  },
  {
    name: 'openapi-core 0.23 of Python',
    packages: [],
    installed: ['python3', '-c', 'import openapi_core.contrib.requests'],
    command: ['python3', 'call.py'],
    program: `import json, os
import requests
from openapi_core import OpenAPI
from openapi_core.contrib.requests import RequestsOpenAPIRequest, RequestsOpenAPIResponse

query = {'filter[Code]': ['STD', 'RED', 'ZER'], 'filter[Rate][gte]': 5, 'sort': '-Rate,Code'}
headers = {'Authorization': 'Bearer ' + os.environ['TOKEN']}
request = requests.Request('GET', os.environ['SERVICE'] + '/api/v1/TaxCodes', params=query, headers=headers)
with open('openapi.json') as file:
    api = OpenAPI.from_dict(json.load(file))

read = api.unmarshal_request(RequestsOpenAPIRequest(request))
sent = {'filter[Code]': ['STD', 'RED', 'ZER'], 'filter[Rate][gte]': 5.0, 'sort': ['-Rate', 'Code']}
assert not read.errors and sent.items() <= read.parameters.query.items(), read
wrong = requests.Request('GET', request.url, params={'filter[Rate][gte]': 'five'}, headers=headers)
assert api.unmarshal_request(RequestsOpenAPIRequest(wrong)).errors
response = requests.Session().send(request.prepare())
api.validate_response(RequestsOpenAPIRequest(request), RequestsOpenAPIResponse(response))
print(json.dumps([record['Code'] for record in response.json()]))`,
  },
  {
    name: 'Prism 5.16',
    packages: ['@stoplight/prism-cli@5.16.0'],
    program: `import { spawn } from 'node:child_process';
${access}
const port = 20_000 + Math.floor(Math.random() * 10_000);
const proxy = spawn('node_modules/.bin/prism', ['proxy', 'openapi.json', url, '--port', port, '--errors']);
await new Promise(resolve =>
  proxy.stdout.on('data', text => String(text).includes('listening') && resolve()),
);
const search = 'filter[Code]=STD&filter[Code]=RED&filter[Code]=ZER&filter[Rate][gte]=5&sort=-Rate,Code';
const list = await (await fetch('http://127.0.0.1:' + port + '/api/v1/TaxCodes?' + search, { headers })).json();
proxy.kill();
${print}`,
  },
  {
    name: 'express-openapi-validator 5.6',
    packages: ['express-openapi-validator@5.6.2', 'express@5.3.0'],
    program: `import express from 'express';
import { middleware } from 'express-openapi-validator';
${access}
const search = '/api/v1/TaxCodes?filter[Code]=STD&filter[Code]=RED&filter[Code]=ZER&filter[Rate][gte]=5&sort=-Rate,Code';
const statuses = [];
let list;
for (const allowUnknownQueryParameters of [false, true]) {
  const app = express();
  const validateRequests = { allowUnknownQueryParameters };
  app.use(middleware({ apiSpec: 'openapi.json', validateRequests, validateSecurity: false }));
  app.get('/api/v1/TaxCodes', async (request, response) =>
    response.json(await (await fetch(url + request.originalUrl, { headers })).json()),
  );
  app.use((error, _request, response, _next) => response.status(error.status ?? 500).json([]));
  const server = app.listen(0, '127.0.0.1');
  await new Promise(resolve => server.on('listening', resolve));
  const response = await fetch('http://127.0.0.1:' + server.address().port + search);
  statuses.push(response.status);
  list = await response.json();
  server.close();
}
if (String(statuses) !== '400,200') throw new Error(String(statuses));
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

  for (const reader of readers) {
    const { name, packages, generate, program, installed } = reader;
    const command = reader.command ?? ['npx', '--no', '--', 'tsx', 'call.mjs'];
    it(`${name} gets the records with one of several codes and a rate, sorted by two fields`, async function () {
      this.timeout(300_000);
      const at = { cwd: folder, env: { ...process.env, TOKEN: String(acme.tokens?.accessToken) } };
      const document = await (await fetch(`${world.url}/docs/openapi.json`)).text();
      await writeFile(join(folder, 'openapi.json'), document);
      await writeFile(join(folder, 'package.json'), '{"type": "module"}');
      await writeFile(join(folder, command.at(-1) ?? ''), program);
      const [check = 'true', ...checkArgs] = installed ?? [];
      await run(check, checkArgs, at).catch(() => this.skip());
      const install = ['install', '--no-audit', '--no-fund', '--ignore-scripts', 'tsx@4'];
      await run('npm', [...install, ...packages], at).catch(() => this.skip());

      if (generate) await run('npx', ['--no', '--', ...generate], at);
      const [interpreter = '', ...args] = command;
      const { stdout } = await run(interpreter, args, {
        ...at,
        env: { ...at.env, SERVICE: world.url },
      });

      expect(JSON.parse(stdout.trim().split('\n').at(-1) ?? '')).to.deep.equal(['STD', 'RED']);
      expect(await readFile(join(root, 'docs/guide/first-call.md'), 'utf8')).to.include(name);
    });
  }
});
