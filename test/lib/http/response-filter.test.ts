import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect } from 'chai';
import Koa from 'koa';
import { z } from 'zod';
import { responseFilter } from '../../../src/lib/http/response/response-filter.ts';
import { UnsentResponses } from '../../../src/lib/http/response/unsent-responses.ts';
import { limitDuration } from '../../../src/lib/http/steps/limit-duration.ts';
import { respond } from '../../../src/service/route-steps.ts';
import { defineRoute } from '../../../src/tenancy/define-route.ts';
import { checkResponse, document, routes } from '../../support/contract.ts';

type Json = Record<string, unknown>;

const item = z.object({ Id: z.int32(), Name: z.string().nullable() });
const order = z.object({
  Id: z.int32(),
  Items: z.array(item),
  First: item.nullable(),
  Note: z.string().optional(),
  Details: z.record(z.string(), z.unknown()).nullable(),
});

const named = {
  Id: 1,
  Items: [
    { Id: 2, Name: 'two' },
    { Id: 3, Name: null },
  ],
  First: { Id: 2, Name: 'two' },
  Details: { any: { field: 1 } },
};

/**
 * The same value with the additional property `secret` in every object but `Details`, whose
 * schema allows any.
 */
const withSecrets = {
  ...named,
  secret: 's',
  Items: named.Items.map(each => ({ ...each, secret: 's', nested: { secret: 's' } })),
  First: { ...named.First, secret: 's' },
};

describe('response filter', () => {
  it('a response contains only the fields that its route names, also in nested objects and arrays', async () => {
    expect(await send(order, withSecrets)).to.deep.equal([200, named]);
    expect(await send(z.array(order), [withSecrets, withSecrets])).to.deep.equal([
      200,
      [named, named],
    ]);
    expect(await send(order, withSecrets, 'revalidate')).to.deep.equal([200, named]);
  });

  it('a response without a documented body is empty, whatever the handler returns', async () => {
    expect(await send(undefined, withSecrets)).to.deep.equal([204, '']);
  });

  it('an instance of a class is sent with its named properties alone', async () => {
    class Stored {
      Id = 1;
      Name = 'one';
      passwordHash = 'secret';
    }
    expect(await send(item, new Stored())).to.deep.equal([200, { Id: 1, Name: 'one' }]);
  });

  it('a scalar field or list that holds an object is an error, and nothing of it is sent', async () => {
    for (const result of [
      { Id: 1, Name: { secret: 's' } },
      { Id: ['s'], Name: null },
    ]) {
      expect(() => responseFilter(item)(result)).to.throw('is an object');
      expect((await send(item, result))[0]).to.equal(500);
    }
    expect(() => responseFilter(z.array(item))({ secret: 's' })).to.throw('is an object');
  });

  it('a schema that does not name all fields of a response is refused when its route is mounted', () => {
    for (const schema of [
      z.looseObject({ Id: z.int32() }),
      z.object({ Id: z.int32() }).catchall(z.string()),
      z.object({ Any: z.any() }),
      z.object({ Id: z.unknown() }),
      z.record(z.string(), item),
      z.union([item, order]),
    ]) {
      expect(() => responseFilter(schema)).to.throw();
    }

    expect(responseFilter(z.strictObject({ Id: z.int32() }))({ Id: 1, secret: 's' })).to.deep.equal(
      { Id: 1 },
    );
  });

  for (const { method, path, response, contentType } of routes) {
    if (!response || contentType) continue; // sent as it is
    it(`${method} ${path} sends no property that its response does not name`, () => {
      const sent = responseFilter(response)(sampleOf(response));
      expect(JSON.stringify(sent)).not.to.include('"unnamed"');
      const fields = (Array.isArray(sent) ? sent[0] : sent) as object;
      const shape = response instanceof z.ZodArray ? response.element : response;
      expect(Object.keys(fields)).to.deep.equal(
        Object.keys((shape as unknown as z.ZodObject).shape),
      );
    });
  }

  it('the documented schema of every response allows no unknown property, so the test client checks for them', () => {
    let objects = 0;
    const checked = new Set<string>();
    const check = (schema: Json, pointer: string): void => {
      const name = typeof schema.$ref === 'string' ? (schema.$ref.split('/').at(-1) ?? '') : '';
      if (name !== '' && !checked.has(name)) {
        checked.add(name);
        check(document.components.schemas[name] as Json, name);
      }

      if (schema.properties) {
        expect(schema.additionalProperties, pointer).to.equal(false);
        objects++;
      }

      for (const [key, value] of Object.entries(schema)) {
        if (typeof value === 'object' && value !== null) check(value as Json, `${pointer}/${key}`);
      }
    };

    for (const [path, operations] of Object.entries(document.paths)) {
      for (const [method, { responses }] of Object.entries(operations)) {
        for (const [status, { content = {} }] of Object.entries(responses)) {
          check(content as Json, `${method} ${path} ${status}`);
        }
      }
    }

    expect(objects).to.be.greaterThan(40);
  });

  it('the test client rejects a response with an unknown property', () => {
    const body = { Id: 1, Name: 'Shipped', Weighting: 1, CreatedAt: '2026-01-01T00:00:00.000Z' };
    const headers = new Headers({ 'content-type': 'application/json' });
    const receive = (received: object): void =>
      checkResponse('GET', 'http://localhost/api/v1/OrderStatuses/1', {
        status: 200,
        headers,
        body: received,
      });

    receive(body);
    expect(() => receive({ ...body, secret: 's' })).to.throw('additional properties');
  });
});

/**
 * Mounts a route with this response schema and a handler that returns `result`; returns status
 * and body.
 */
async function send(
  response: z.ZodType | undefined,
  result: unknown,
  cache: 'no-store' | 'revalidate' = 'no-store',
): Promise<[number, unknown]> {
  const common = { method: 'GET', path: '/', access: 'anonymous', tag: '', summary: '' } as const;
  const route = defineRoute({
    ...common,
    cache,
    ...(response ? { response } : {}),
    handler: async () => result as never,
  });

  const app = new Koa({ asyncLocalStorage: false });
  app.silent = true;
  const server: Server = createServer(
    app
      .use(limitDuration(10_000))
      .use(respond(route, { unsentResponses: new UnsentResponses(), addressOf: path => path }))
      .callback(),
  ).listen(0, '127.0.0.1');

  try {
    await new Promise(resolve => server.once('listening', resolve));
    const { status, ...received } = await fetchText(
      `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    );

    return [status, status === 200 ? JSON.parse(received.text) : received.text];
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

async function fetchText(url: string): Promise<{ status: number; text: string }> {
  const response = await fetch(url);
  return { status: response.status, text: await response.text() };
}

/** Returns a value for a schema; each object in it has an additional property `unnamed`. */
function sampleOf(schema: z.ZodType): unknown {
  if (schema instanceof z.ZodArray) return [sampleOf(schema.element as z.ZodType)];
  if (schema instanceof z.ZodNullable || schema instanceof z.ZodOptional) {
    return sampleOf(schema.unwrap() as z.ZodType);
  }
  if (schema instanceof z.ZodObject) {
    const fields = Object.entries(schema.shape).map(([name, field]) => [
      name,
      sampleOf(field as z.ZodType),
    ]);
    return { ...Object.fromEntries(fields), unnamed: 's' };
  }
  return schema instanceof z.ZodRecord ? {} : 'a scalar';
}
