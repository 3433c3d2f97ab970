import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { root } from '../support/command-line.ts';
import { type EndingProxy, startEndingProxy } from '../support/ending-proxy.ts';
import { eventually } from '../support/eventually.ts';
import { freePort } from '../support/free-port.ts';
import { type ServiceProcess, useServiceProcesses } from '../support/service-processes.ts';
import { useLogin, useWorld } from '../support/world.ts';

const run = promisify(execFile);

/** A quiet stream sends a comment after 15 s, and its place where changes were passed by. */
const quietMs = 20_000;
const arrivalMs = 60_000;

/** A library that reads server-sent events, and a program that uses it as the guide says. */
interface Library {
  /** Texts of its row in the table of the guide. */
  readonly row: readonly string[];
  readonly file: string;
  readonly command: readonly string[];
  /** Commands before the program. The first one fails where the library is not installed. */
  readonly installed: readonly (readonly string[])[];
  /**
   * Prints the `EventId` of each change. The environment has `STREAM`, an address with a query,
   * `CURSOR`, the place where it begins, and `TOKEN`.
   */
  readonly program: string;
}

const npm = ['npm', 'install', '--no-audit', '--no-fund', '--ignore-scripts'];
const environment = `const { STREAM, CURSOR, TOKEN, SERVICE } = process.env;
const headers = { Authorization: 'Bearer ' + TOKEN };`;
const bearer = `'Bearer ' . getenv('TOKEN')`;

const libraries: Readonly<Record<string, Library>> = {
  'eventsource 5.1': {
    row: ['its `fetch` option', '`setInterval(() => {}, 60_000)`'],
    file: 'follow.mjs',
    command: [process.execPath],
    installed: [[...npm, 'eventsource@5.1.5']],
    program: `
import { EventSource } from 'eventsource';
${environment}
const source = new EventSource(STREAM + '&after=' + CURSOR, {
  fetch: (input, init) => fetch(input, { ...init, headers: { ...init.headers, ...headers } }),
});
source.onmessage = ({ data }) => console.log(JSON.parse(data).EventId);
setInterval(() => {}, 60_000);`,
  },
  'eventsource-client 1.2': {
    row: ['`initialLastEventId`', 'leave out messages with an `event`'],
    file: 'follow.mjs',
    command: [process.execPath],
    installed: [[...npm, 'eventsource-client@1.2.0']],
    program: `
import { createEventSource } from 'eventsource-client';
${environment}
const source = createEventSource({ url: STREAM, headers, initialLastEventId: CURSOR });
for await (const { data, event } of source) {
  if (!event) console.log(JSON.parse(data).EventId);
}`,
  },
  'hey-api 0.99': {
    row: ['`onSseEvent`', 'leave out what has no `EventId`'],
    file: 'follow.mjs',
    command: [process.execPath, '--import', 'tsx'],
    installed: [
      [...npm, '@hey-api/openapi-ts@0.99.0', 'typescript@5.9.3', 'tsx@4'],
      [
        'npx',
        '--no',
        '--',
        'openapi-ts',
        '-i',
        'openapi.json',
        '-o',
        'made',
        '-c',
        '@hey-api/client-fetch',
      ],
    ],
    program: `
import { getChangesStream } from './made/index.ts';
${environment}
let last = CURSOR;
for (;;) {
  const { stream } = await getChangesStream({
    baseUrl: SERVICE,
    headers: { ...headers, 'Last-Event-ID': last },
    query: { resource: 'Country' },
    onSseEvent: ({ id }) => {
      last = id ?? last;
    },
  });
  for await (const change of stream) {
    if (change.EventId) console.log(change.EventId);
  }
  await new Promise(resolve => setTimeout(resolve, 500));
}`,
  },
  'fetch-event-source 2.0': {
    row: ['`last-event-id`', '`if (message.data && !message.event)`'],
    file: 'follow.mjs',
    command: [process.execPath],
    installed: [[...npm, '@microsoft/fetch-event-source@2.0.1']],
    program: `
globalThis.window = globalThis; // it is written for browsers
const { fetchEventSource } = await import('@microsoft/fetch-event-source');
${environment}
let last = CURSOR;
for (;;) {
  await fetchEventSource(STREAM, {
    fetch,
    openWhenHidden: true,
    headers: { ...headers, 'last-event-id': last },
    onmessage: message => {
      last = message.id || last;
      if (message.data && !message.event) console.log(JSON.parse(message.data).EventId);
    },
  }).catch(() => {});
  await new Promise(resolve => setTimeout(resolve, 500));
}`,
  },
  'httpx-sse 0.4': {
    row: [`if event.data and event.event == 'message':`],
    file: 'follow.py',
    command: ['python3'],
    installed: [['python3', '-c', 'import httpx_sse']],
    program: `
import os, time
import httpx
from httpx_sse import SSEError, connect_sse

last = os.environ['CURSOR']
while True:
    headers = {'Authorization': 'Bearer ' + os.environ['TOKEN'], 'Last-Event-ID': last}
    try:
        with httpx.Client(timeout=30) as client:
            with connect_sse(client, 'GET', os.environ['STREAM'], headers=headers) as source:
                for event in source.iter_sse():
                    last = event.id or last
                    if event.data and event.event == 'message':
                        print(event.json()['EventId'], flush=True)
    except (httpx.TransportError, SSEError):
        pass
    time.sleep(0.5)`,
  },
  'Symfony 5.4': {
    row: ['`stream($source, 20)`', '`Throwable`', '`after`'],
    file: 'follow.php',
    command: ['php'],
    installed: [
      ['php', '-r', `require '/usr/share/php/Symfony/Component/HttpClient/autoload.php';`],
    ],
    program: `<?php
require '/usr/share/php/Symfony/Component/HttpClient/autoload.php';
use Symfony\\Component\\HttpClient\\Chunk\\ServerSentEvent;
use Symfony\\Component\\HttpClient\\EventSourceHttpClient;

$last = getenv('CURSOR');
for (;;) {
  $client = new EventSourceHttpClient();
  try {
    $headers = ['Authorization' => ${bearer}];
    $source = $client->connect(getenv('STREAM') . '&after=' . $last, ['headers' => $headers]);
    foreach ($client->stream($source, 20) as $chunk) {
      if ($chunk->isTimeout() || !$chunk instanceof ServerSentEvent) continue;
      $last = $chunk->getId() ?: $last;
      if ($chunk->getData() && $chunk->getType() === 'message') {
        echo json_decode($chunk->getData())->EventId, "\\n";
      }
    }
  } catch (Throwable) {
  }
  usleep(500000);
}`,
  },
  'httr2 of R': {
    row: ['`req_perform_connection(req, blocking = FALSE)`'],
    file: 'follow.R',
    command: ['Rscript'],
    installed: [['Rscript', '-e', 'stopifnot(packageVersion("httr2") >= "1.1.0")']],
    program: `
library(httr2)
last <- Sys.getenv("CURSOR")
follow <- function() {
  req <- req_auth_bearer_token(request(Sys.getenv("STREAM")), Sys.getenv("TOKEN"))
  con <- req_perform_connection(req_headers(req, "Last-Event-ID" = last), blocking = FALSE)
  on.exit(close(con))
  while (!resp_stream_is_complete(con)) {
    event <- resp_stream_sse(con)
    if (is.null(event)) {
      Sys.sleep(0.1)
      next
    }
    if (nzchar(event$id)) last <<- event$id
    if (event$type == "message" && nzchar(event$data)) {
      change <- jsonlite::fromJSON(event$data)
      cat(change$EventId, "\\n", sep = "")
    }
  }
}
repeat {
  tryCatch(follow(), error = function(e) message(conditionMessage(e)))
  Sys.sleep(0.5)
}`,
  },
};

describe('drill: the stream of changes by libraries', () => {
  const world = useWorld();
  const acme = useLogin(world, 'acme');
  const globex = useLogin(world, 'globex');
  const processes = useServiceProcesses();
  let port: string;
  let streaming: ServiceProcess;
  let proxy: EndingProxy;
  let folder: string;
  let follower: ChildProcess | undefined;
  let letters = 0;

  const start = () => processes.start({ ...world.environment, PORT: port });

  before(async () => {
    port = String(await freePort());
    streaming = await start();
    proxy = await startEndingProxy(streaming.url);
  });

  after(() => proxy.close());

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'backoffice-stream-'));
  });

  afterEach(async () => {
    follower?.kill('SIGKILL');
    await rm(folder, { recursive: true });
  });

  /** Makes a country of each tenant, and a currency that a stream of countries passes by. */
  async function change(): Promise<void> {
    const CountryCode = `Z${String.fromCharCode(65 + letters++ / 26, 65 + (letters % 26))}`;
    for (const tenant of [globex, acme]) {
      await tenant.post('/api/v1/Countries', { CountryCode, CountryName: CountryCode });
    }
  }

  for (const [name, { row, file, command, installed, program }] of Object.entries(libraries)) {
    it(`${name} gets each change once, after quiet times, cuts and restarts, as the guide says`, async function () {
      this.timeout(600_000);
      const document = await (await fetch(`${world.url}/docs/openapi.json`)).text();
      await writeFile(join(folder, 'openapi.json'), document);
      await writeFile(join(folder, 'package.json'), '{"type": "module"}');
      for (const [first = '', ...args] of installed) {
        await run(first, args, { cwd: folder }).catch(() => this.skip());
      }
      const guide = await readFile(join(root, 'docs/guide/events.md'), 'utf8');
      const line = guide.split('\n').find(each => each.startsWith(`| ${name}`));
      for (const text of row) expect(line).to.include(text);

      const { tokens } = await world.login(world.acme);
      const { headers } = await acme.get('/api/v1/Changes?after=now');
      const cursor = String(headers.get('next-cursor'));
      const address = proxy.through(streaming.url);
      const [interpreter = '', ...args] = command;
      await writeFile(join(folder, file), program.trimStart());
      const began = spawn(interpreter, [...args, file], {
        cwd: folder,
        stdio: ['ignore', 'pipe', 'inherit'],
        env: {
          ...process.env,
          SERVICE: address.replace(/\/$/, ''),
          STREAM: new URL('/api/v1/Changes/stream?resource=Country', address).href,
          CURSOR: cursor,
          TOKEN: String(tokens?.accessToken),
        },
      });
      follower = began;
      let printed = '';
      began.stdout.on('data', text => {
        printed += text;
      });
      const seen = () => printed.trim().split('\n').filter(Boolean);
      const arrived = (count: number) => eventually(() => seen().length >= count, arrivalMs);

      await change();
      await arrived(1);

      await acme.post('/api/v1/Currency', {
        Code: `Q${String.fromCharCode(65 + letters)}Q`,
        Name: 'Passed by',
      });
      await new Promise(resolve => setTimeout(resolve, quietMs)); // the comment, and the place
      await change();
      await arrived(2);

      proxy.end();
      await change();
      await arrived(3);

      streaming.process.kill('SIGTERM');
      await streaming.ended;
      await change();
      streaming = await start();
      await arrived(4);

      const { body } = await acme.get(`/api/v1/Changes?after=${cursor}&resource=Country`);
      expect(body).to.have.length(4);
      expect(seen()).to.deep.equal(body.map(({ EventId }: { EventId: string }) => EventId));
    });
  }
});
