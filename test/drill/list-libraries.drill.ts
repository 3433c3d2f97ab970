import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { root } from '../support/command-line.ts';
import { useLogin, useWorld } from '../support/world.ts';

const run = promisify(execFile);

/** A library, and a program that makes the call of the guide with it. */
interface Library {
  /** The text of the guide that the program has. */
  readonly call: string;
  readonly file: string;
  readonly command: readonly string[];
  /** Fails where the library, or its version, is not installed. */
  readonly installed: readonly string[];
  /** Prints the status and the body. The environment has `LIST` and `TOKEN`. */
  readonly program: string;
}

const php = `http_build_query(['filter' => ['Code' => ['EUR', 'SEK']]])`;
const phpSort = `http_build_query(['sort' => ['Symbol', '-Code']])`;
const bearer = `'Bearer ' . getenv('TOKEN')`;

/** Where Debian's packages of the libraries of PHP are. */
const phpFolder = '/usr/share/php';

const libraries: Readonly<Record<string, Library>> = {
  'URLSearchParams of JavaScript': {
    call: `new URLSearchParams([['filter[Code]', 'EUR'], ['filter[Code]', 'SEK']])`,
    file: 'list.mjs',
    command: [process.execPath],
    installed: [process.execPath, '--version'],
    program: `
      const query = new URLSearchParams([['filter[Code]', 'EUR'], ['filter[Code]', 'SEK']]);
      for (const field of ['Symbol', '-Code']) query.append('sort', field);
      const headers = { Authorization: 'Bearer ' + process.env.TOKEN };
      const response = await fetch(process.env.LIST + '?' + query, { headers });
      console.log(response.status, await response.text());`,
  },
  axios: {
    call: `params: { 'filter[Code]': ['EUR', 'SEK'] }`,
    file: 'list.mjs',
    command: [process.execPath],
    installed: ['npm', 'install', '--no-audit', '--no-fund', 'axios@1.21.1'],
    program: `
      import axios from 'axios';
      const headers = { Authorization: 'Bearer ' + process.env.TOKEN };
      const { status, data } = await axios.get(process.env.LIST, {
        headers,
        params: { 'filter[Code]': ['EUR', 'SEK'], sort: ['Symbol', '-Code'] },
      });
      console.log(status, JSON.stringify(data));`,
  },
  'Guzzle of PHP': {
    call: php,
    file: 'list.php',
    command: ['php'],
    installed: ['php', '-r', `require '${phpFolder}/GuzzleHttp/autoload.php';`],
    program: `<?php
      require '${phpFolder}/GuzzleHttp/autoload.php';
      $client = new GuzzleHttp\\Client();
      $response = $client->get(getenv('LIST'), [
        'query' => ${php} . '&' . ${phpSort},
        'headers' => ['Authorization' => ${bearer}],
      ]);
      echo $response->getStatusCode(), ' ', $response->getBody();`,
  },
  'the HTTP client of Symfony': {
    call: php,
    file: 'list.php',
    command: ['php'],
    installed: ['php', '-r', `require '${phpFolder}/Symfony/Component/HttpClient/autoload.php';`],
    program: `<?php
      require '${phpFolder}/Symfony/Component/HttpClient/autoload.php';
      $client = Symfony\\Component\\HttpClient\\HttpClient::create();
      $response = $client->request('GET', getenv('LIST') . '?' . ${php} . '&' . ${phpSort}, [
        'headers' => ['Authorization' => ${bearer}],
      ]);
      echo $response->getStatusCode(), ' ', $response->getContent();`,
  },
  'Faraday of Ruby': {
    call: `{ 'filter[Code]' => ['EUR', 'SEK'] }`,
    file: 'list.rb',
    command: ['ruby'],
    installed: ['ruby', '-r', 'faraday', '-e', ''],
    program: `
      require 'faraday'
      headers = { 'Authorization' => "Bearer #{ENV['TOKEN']}" }
      query = { 'filter[Code]' => ['EUR', 'SEK'], 'sort' => ['Symbol', '-Code'] }
      response = Faraday.get(ENV['LIST'], query, headers)
      puts "#{response.status} #{response.body}"`,
  },
  'requests of Python': {
    call: `params={'filter[Code]': ['EUR', 'SEK']}`,
    file: 'list.py',
    command: ['python3'],
    installed: ['python3', '-c', 'import requests'],
    program: `
import os, requests
headers = {'Authorization': 'Bearer ' + os.environ['TOKEN']}
params = {'filter[Code]': ['EUR', 'SEK'], 'sort': ['Symbol', '-Code']}
response = requests.get(os.environ['LIST'], params=params, headers=headers)
print(response.status_code, response.text)`,
  },
  'httr2 of R': {
    call: `req_url_query(req, "filter[Code]" = c("EUR", "SEK"), .multi = "explode")`,
    file: 'list.R',
    command: ['Rscript'],
    installed: ['Rscript', '-e', 'stopifnot(packageVersion("httr2") >= "1.0.0")'],
    program: `
      library(httr2)
      req <- req_auth_bearer_token(request(Sys.getenv("LIST")), Sys.getenv("TOKEN"))
      req <- req_url_query(req, "filter[Code]" = c("EUR", "SEK"), .multi = "explode")
      req <- req_url_query(req, sort = c("Symbol", "-Code"), .multi = "explode")
      response <- req_perform(req)
      cat(resp_status(response), resp_body_string(response))`,
  },
};

describe('drill: any of several values, and sorts, by the calls of the guide', () => {
  const world = useWorld();
  const acme = useLogin(world, 'acme');
  const globex = useLogin(world, 'globex');
  let token: string;
  let folder: string;

  before(async () => {
    for (const Code of ['EUR', 'SEK', 'USD']) {
      await acme.post('/api/v1/Currency', { Code, Name: `${Code} of acme` });
    }
    await globex.post('/api/v1/Currency', { Code: 'EUR', Name: 'EUR of globex' });

    const { body } = await acme.post('/api/v1/auth/login', world.acme.admin, {
      'X-Tenant': world.acme.guid,
    });
    token = body.accessToken;
  });

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'backoffice-library-'));
  });

  afterEach(() => rm(folder, { recursive: true }));

  for (const [name, { call, file, command, installed, program }] of Object.entries(libraries)) {
    it(`${name} gets the records with one of two codes by the call of the guide, sorted by a list of fields`, async function () {
      const [check = '', ...checkArgs] = installed;
      await run(check, checkArgs, { cwd: folder }).catch(() => this.skip());
      const [start = '', ...args] = command;
      await writeFile(join(folder, file), program.trimStart());

      const { stdout } = await run(start, [...args, file], {
        cwd: folder,
        env: { ...process.env, LIST: `${world.url}/api/v1/Currency`, TOKEN: token },
      });

      const [, status = '', body = ''] = /^(\d+) (.*)$/s.exec(stdout.trim()) ?? [];
      expect(status, stdout).to.equal('200');
      expect((JSON.parse(body) as { Name: string }[]).map(each => each.Name)).to.deep.equal([
        'SEK of acme',
        'EUR of acme',
      ]);
      expect(await readFile(join(root, 'docs/guide/lists.md'), 'utf8')).to.include(call);
    });
  }
});
