#!/usr/bin/env bash
# Guess: Express and Koa answer 304 to an If-None-Match that is the ETag, whatever RFC 9110 allows in it.
# Found: an ETag with a comma is never the same: the header is split there, also inside the quotation marks.
. "$(dirname "$0")/support.sh"

use_npm express@5.3.0 koa@3.3.0
cat > run.js <<'JS'
import { createServer, get } from 'node:http';
import express from 'express';
import Koa from 'koa';

const app = express().use((request, response) => {
  response.set('ETag', request.headers['if-none-match']).send('body');
});
const koa = new Koa().use(ctx => {
  ctx.etag = ctx.get('If-None-Match');
  ctx.body = 'body';
  if (ctx.fresh) ctx.status = 304;
});
for (const [name, listener] of [['Express', app], ['Koa', koa.callback()]]) {
  const server = createServer(listener);
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
  for (const etag of ['"v7-ab"', '"v7-a,b"']) {
    const { port } = server.address();
    const response = await new Promise(resolve => get({ port, headers: { 'If-None-Match': etag } }, resolve));
    console.log(`${name}, ${etag}: ${response.resume().statusCode}`);
  }
  server.close();
}
process.exit();
JS
expect node run.js <<'OUT'
Express, "v7-ab": 304
Express, "v7-a,b": 200
Koa, "v7-ab": 304
Koa, "v7-a,b": 200
OUT
