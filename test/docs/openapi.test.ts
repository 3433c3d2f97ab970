import { readdir, readFile } from 'node:fs/promises';
import { createConfig, lintFromString } from '@redocly/openapi-core';
import { Validator } from '@seriousme/openapi-schema-validator';
import { Ajv2020 } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';
import { expect } from 'chai';
import type { z } from 'zod';
import { operatorsOf } from '../../src/lib/http/request/list-parameters/list-contract.ts';
import { problems } from '../../src/lib/problems.ts';
import { openApiText } from '../../src/service/pages/openapi-document.ts';
import { problemSchema } from '../../src/service/pages/openapi-problems.ts';
import type { Client } from '../support/client.ts';
import { runScript } from '../support/command-line.ts';
import {
  document,
  type Operation,
  pointerTo,
  routes,
  seenStatuses,
  violationsOf,
} from '../support/contract.ts';
import { eventually } from '../support/eventually.ts';
import { useLogin, useWorld, type World } from '../support/world.ts';

const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]) => ({
    name: `${method.toUpperCase()} ${path}`,
    path,
    operation,
  })),
);
const text = openApiText(routes);

interface Schema {
  $ref?: string;
  title?: string;
  type?: string | string[];
  format?: string;
  description?: string;
  const?: unknown;
  enum?: unknown[];
  minimum?: number;
  maximum?: number;
  items?: Schema;
  anyOf?: Schema[];
  properties?: Record<string, Schema>;
}

/** Every schema of the document, with its place and the types that it allows. */
const schemas = schemasIn(JSON.parse(text), []);

/** The schemas in a part of the document: what has a type that is none of a security scheme. */
function schemasIn(
  part: unknown,
  path: string[],
): { place: string; schema: Schema; types: string[] }[] {
  if (typeof part !== 'object' || part === null) return [];

  const inner = Object.entries(part)
    .filter(([name]) => name !== 'example' && name !== 'examples' && name !== 'securitySchemes')
    .flatMap(([name, value]) => schemasIn(value, [...path, name]));
  const { type } = part as Schema;
  const isSchema = type !== undefined && path.at(-1) !== 'properties';
  return isSchema
    ? [{ place: path.join('/'), schema: part as Schema, types: [type].flat() }, ...inner]
    : inner;
}

/**
 * The type of a schema, its format and its bounds, without what only a request is held to: the
 * length of a text, and a choice, because a later build may have stored another one.
 */
function kindOf({ type, format, minimum, maximum, items }: Schema): unknown {
  const types = [type].flat().filter(each => each !== 'null');
  return [types, format, minimum, maximum, items && kindOf(items)];
}

function resolved(schema: Schema | undefined): Schema {
  const name = schema?.$ref?.split('/').at(-1);
  return name ? (document.components.schemas[name] as Schema) : (schema ?? {});
}

function documentPath({ path }: { path: string }): string {
  return path.replace(/:(\w+)/g, '{$1}');
}

/** The fields of the records of a list. */
function recordOf(path: string): Record<string, Schema> {
  const list = document.paths[path]?.get?.responses['200']?.content?.['application/json']?.schema;
  return resolved((list as Schema).items).properties ?? {};
}

/** The fields of the body of an operation. */
function bodyOf(operation: Operation | undefined): Record<string, Schema> {
  const body = operation?.requestBody?.content['application/json']?.schema;
  return resolved(body as Schema | undefined).properties ?? {};
}

function parameterOf(path: string, name: string): Schema | undefined {
  return document.paths[path]?.get?.parameters.find(each => each.name === name)?.schema as Schema;
}

type Content = Operation['responses'][string]['content'];

/** Endpoints that need a mail or a secret. Tests of their own cover their success. */
const coveredElsewhere =
  /\/auth\/(?!login$|refresh|me|logout)|\/GenerateToken|\/Changes\/stream|\/Webhooks\/\{id\}\/\w+|\/Programs\/(\{id\}\/)?keys/;
/** The endpoints of keys, whose paths have the id of a key: program-life.test.ts calls them. */
const ofKeys = /\/Programs\/(\{id\}\/)?keys/;

describe('OpenAPI document', () => {
  it('the document is valid OpenAPI 3.1', async () => {
    const validator = new Validator();
    const { valid, errors } = await validator.validate(JSON.parse(text));
    expect(errors, JSON.stringify(errors)).to.equal(undefined);
    expect(valid).to.equal(true);
    expect(validator.version).to.equal('3.1');
  });

  it('the recommended rules of a linter find nothing in the document', async () => {
    const config = await createConfig({ extends: ['recommended'] });

    const found = await lintFromString({ source: text, config });

    expect(found.map(({ ruleId, message }) => `${ruleId}: ${message}`)).to.deep.equal([]);
  });

  it('npm run openapi prints the document without a database and without settings', async () => {
    const { code, stdout, stderr } = await runScript('scripts/openapi.ts', [], {});
    expect(stderr).to.equal('');
    expect(code).to.equal(0);
    expect(stdout).to.equal(text);
  });

  it('the document describes exactly the mounted routes', () => {
    const mounted = routes.map(
      ({ method, path }) => `${method} ${path.replace(/:(\w+)/g, '{$1}')}`,
    );
    expect(operations.map(({ name }) => name)).to.have.members(mounted);
    expect(new Set(mounted).size).to.equal(mounted.length);
  });

  it('the document has a contact, and every tag has a description', () => {
    const { info, tags } = JSON.parse(text);
    expect(info.contact.name).to.be.a('string');
    for (const { name, description } of tags) expect(description, name).to.match(/^[A-Z].+\.$/);
  });

  it('every operation has a unique operationId', () => {
    const ids = operations.map(({ operation }) => operation.operationId);
    expect(new Set(ids).size).to.equal(ids.length);
    for (const id of ids) expect(id).to.match(/^[a-z][A-Za-z]+$/);
  });

  it('every response that names the path of a new record has its ETag, for the first change of it', () => {
    const created = routes.filter(({ status, location }) => status === 201 && location);
    expect(created.length).to.be.above(10);
    expect(created.filter(({ hasTag }) => !hasTag).map(({ path }) => path)).to.deep.equal([]);
  });

  it('every $ref resolves, and the document names no database, host or file', () => {
    for (const [, pointer = ''] of text.matchAll(/"\$ref": "#\/([^"]+)"/g)) {
      const target = pointer
        .split('/')
        .reduce<unknown>((at, key) => (at as Record<string, unknown>)?.[key], document);
      expect(target, pointer).to.be.an('object');
    }
    expect(text.replaceAll(/https:\/\/(hooks|login)\.example\.com/g, '')).not.to.match(
      /localhost|127\.0\.0\.1|https?:|postgres|node_modules|\.ts\b/,
    );
  });

  it('every time in a request has the format date-time', () => {
    const isTime = (field: string) => /(At|Since|from|to)$/.test(field);

    const times = operations.flatMap(({ name, operation }) => {
      const fields = [
        ...Object.entries(bodyOf(operation)),
        ...operation.parameters.map(({ name, schema }): [string, object] => [name, schema]),
      ];
      return fields
        .filter(([field]) => isTime(field))
        .map(([field, schema]) => ({ field: `${field} of ${name}`, text: JSON.stringify(schema) }));
    });

    expect(times).to.have.length.above(10);
    for (const { field, text } of times) {
      expect(text, field).to.include('"format":"date-time"');
    }
  });

  it('every object in the document has a title, which no other has, and is a component unless it may be null', () => {
    const objects = schemas.filter(({ types }) => types.includes('object'));
    const titles = objects.map(({ schema }) => schema.title);
    const inline = objects.filter(
      ({ types, place }) => !types.includes('null') && !/^components\/schemas\/\w+$/.test(place),
    );

    expect(objects).to.have.length.above(100);
    expect(new Set(titles).size).to.equal(objects.length);
    expect(titles).not.to.include(undefined);
    expect(inline.map(({ place }) => place)).to.deep.equal([]);
  });

  it('every integer in the document has a format and bounds', () => {
    const integers = schemas.filter(({ types }) => types.includes('integer'));
    const unbound = integers.filter(
      ({ schema: { format, minimum, maximum } }) =>
        !format || minimum === undefined || maximum === undefined,
    );

    expect(integers).to.have.length.above(100);
    expect(unbound.map(({ place }) => place)).to.deep.equal([]);
  });

  it('a count or a number of hours in the document is never negative', () => {
    const mayBeNegative = /\/(Weighting|ActivityCode|alg)$/;
    const parameters = operations.flatMap(({ operation }) => operation.parameters ?? []);
    const filters = parameters.flatMap(({ name, schema }) => {
      const [, field = ''] = /^filter\[(\w+)\]/.exec(name ?? '') ?? [];
      const { items } = schema as Schema;
      return [schema as Schema, ...(items ? [items] : [])].map(each => ({
        place: `${name}/${field || name}`,
        schema: each,
      }));
    });
    const fields = schemas.filter(({ place }) => !/\/parameters\//.test(place));

    const negative = [...fields, ...filters].filter(({ schema: { minimum = 0 } }) => minimum < 0);

    expect(filters).to.have.length.above(500);
    const places = negative.map(({ place }) => place);
    expect(places.filter(place => !mayBeNegative.test(place))).to.deep.equal([]);
  });

  it('every property in the document has a sentence', () => {
    const properties = schemas.flatMap(({ place, schema }) =>
      Object.entries(schema.properties ?? {}).map(([name, { description = '' }]) => ({
        name: `${place}/${name}`,
        description,
      })),
    );

    expect(properties).to.have.length.above(500);
    for (const { name, description } of properties) {
      expect(description, name).to.match(/^\W?[A-Z0-9].*[.:]$|^`/s);
    }
  });

  it('a value that may be null has two types, as OpenAPI 3.0 can say it, too', () => {
    const optional = schemas.filter(({ types }) => types.includes('null'));
    const apart = schemas.filter(({ schema }) => schema.anyOf?.some(({ type }) => type === 'null'));

    expect(optional).to.have.length.above(50);
    for (const { types, schema, place } of optional) {
      expect(types, place).to.have.length(2);
      if (schema.enum) expect(schema.enum, place).to.include(null);
    }
    expect(apart.map(({ place }) => place)).to.deep.equal([]);
  });

  it('a field is described alike in bodies, responses and filters, and so is an id in paths', () => {
    const differences: string[] = [];
    const compare = (place: string, one: Schema, other: Schema) => {
      if (JSON.stringify(kindOf(one)) !== JSON.stringify(kindOf(other))) differences.push(place);
    };
    let compared = 0;

    for (const route of routes.filter(({ list }) => list)) {
      const path = documentPath(route);
      const listed = recordOf(path);
      const sent = bodyOf(document.paths[path]?.post);

      for (const [name, field] of Object.entries(listed)) {
        const filter = parameterOf(path, `filter[${name}]`)?.items;
        if (filter && !filter.anyOf) {
          compare(`filter of ${name} of ${path}`, filter, field.items ?? field);
        }
        if (sent[name]) compare(`${name} of POST ${path}`, sent[name], field);
        compared++;
      }

      const single = `${path}/{id}`;
      const id = document.paths[single] && parameterOf(single, 'id');
      if (id) compare(single, id, listed.Id ?? {});
    }

    expect(compared).to.be.above(80);
    expect(differences).to.deep.equal([]);
  });

  it('the document allows every query that the guide shows', async () => {
    const ajv = new Ajv2020({ strict: false, coerceTypes: true });
    formats.default(ajv);
    const folder = new URL('../../docs/guide/', import.meta.url);
    const pages = (await readdir(folder)).filter(file => file.endsWith('.md'));
    const texts = await Promise.all(pages.map(file => readFile(new URL(file, folder), 'utf8')));
    const shown = texts
      .flatMap(text => [...text.matchAll(/(\/api\/v1\/\w+(?:\/\w+)*)\?([^\s"'`>)]+)/g)])
      .filter(([, path = '']) => path in document.paths);

    expect(shown).to.have.length.above(10);
    for (const [address, path = '', query] of shown) {
      const parameters = Object.values(document.paths[path] ?? {}).flatMap(each => each.parameters);

      for (const [name, value] of new URLSearchParams(query)) {
        const parameter = parameters.find(each => each.in === 'query' && each.name === name);
        expect(parameter, `${name} of ${address}`).not.to.equal(undefined);
        if (/[…$]/.test(value)) continue; // a value that the reader puts in

        const { items, ...schema } = resolved(parameter?.schema as Schema | undefined);
        const values = schema.type === 'array' ? value.split(',') : [value];
        const isValid = ajv.compile({ type: 'array', items: items ?? schema });
        expect(isValid(values), `${name} of ${address}`).to.equal(true);
      }
    }
  });

  it('every parameter of a path has an example that its schema accepts', () => {
    const places = operations.flatMap(({ name, path, operation }) => {
      const [method = ''] = name.split(' ');
      return operation.parameters.map((parameter, index) => ({
        name,
        parameter: parameter as typeof parameter & { example?: unknown },
        pointer: `/paths/${pointerTo(path)}/${method.toLowerCase()}/parameters/${index}/schema`,
      }));
    });
    const ofPaths = places.filter(({ parameter }) => parameter.in === 'path');

    expect(ofPaths).to.have.length.above(50);
    for (const { name, parameter, pointer } of ofPaths) {
      expect(parameter.example, name).not.to.equal(undefined);
      expect(violationsOf(pointer, parameter.example), name).to.equal(undefined);
    }
  });

  for (const { name, path, operation } of operations) {
    describe(name, () => {
      const route = routes.find(
        route => `${route.method} ${route.path.replace(/:(\w+)/g, '{$1}')}` === name,
      ) as (typeof routes)[number];

      it(`${name} documents its purpose and the access that it requires`, () => {
        expect(operation.summary).to.match(/^[A-Z].*[^.]$/);
        expect(operation.summary).not.to.match(/\b[Aa] [AEIOaeio]/);
        expect(operation.tags).to.have.length(1);

        const isPermission = String(route.access).includes('.');
        const security = operation.security ?? document.security;

        if (route.access === 'anonymous') expect(security).to.deep.equal([]);
        if (route.access === 'user' || isPermission) {
          expect(security).to.deep.equal([{ bearer: [] }]);
        }
        expect(operation['x-permission']).to.equal(isPermission ? route.access : undefined);
        if (isPermission) expect(operation.description).to.include(`\`${route.access}\``);
      });

      it(`${name} documents every parameter`, () => {
        const named = (place: string) =>
          operation.parameters.filter(({ in: where }) => where === place);
        expect(named('path').map(({ name }) => name)).to.deep.equal(
          [...path.matchAll(/\{(\w+)\}/g)].map(([, n]) => n),
        );
        expect(named('path').every(({ required }) => required)).to.equal(true);

        const own = Object.keys(route.query?.shape ?? {});
        const ofList = route.list ? ['limit', 'after', 'offset', 'sort', 'q', 'bom'] : [];
        if (route.list && route.list.includes.length > 0) ofList.push('include');
        const fields = [...new Set(route.list?.fields.values() ?? [])];
        const filters = fields.flatMap(field => [
          `filter[${field.name}]`,
          ...operatorsOf(field).map(operator => `filter[${field.name}][${operator}]`),
        ]);
        const names = named('query').map(({ name }) => name);
        expect(names).to.have.members([...new Set([...own, ...ofList, ...filters])]);

        const isConditional = '304' in operation.responses || '412' in operation.responses;
        expect(named('header').some(({ name }) => name === 'If-None-Match')).to.equal(
          isConditional,
        );
        for (const parameter of operation.parameters) {
          expect(parameter).to.have.property('description').that.is.ok;
        }
      });

      it(`${name} has an example body that its contract accepts, if it takes a body`, () => {
        const content = operation.requestBody?.content['application/json'];
        expect(content !== undefined).to.equal(route.body !== undefined);
        if (!content) return;
        expect(content.example).to.be.an('object').that.is.not.empty;

        const contract = route.body as z.ZodObject;
        const accepted = (route.method === 'PATCH' ? contract.partial() : contract).safeParse(
          content.example,
        );
        expect(accepted.error?.issues).to.equal(undefined);
        expect(Object.keys(accepted.data ?? {})).to.include.members(
          Object.keys(content.example as object),
        );
      });

      it(`${name} has an example that its schema accepts, for the request and for each response`, () => {
        const [method = ''] = name.split(' ');
        const pointer = `/paths/${pointerTo(path)}/${method.toLowerCase()}`;
        const bodies: [string, Content | undefined][] = [
          [`${pointer}/requestBody`, operation.requestBody?.content],
        ];

        for (const [status, { $ref, content }] of Object.entries(operation.responses)) {
          const shared = $ref?.split('/').at(-1) ?? '';
          bodies.push(
            $ref
              ? [`/components/responses/${shared}`, document.components.responses[shared]?.content]
              : [`${pointer}/responses/${status}`, content],
          );
        }

        for (const [place, content] of bodies) {
          for (const [type, { example }] of Object.entries(content ?? {})) {
            expect(example, place).not.to.equal(undefined);
            if (!type.endsWith('json')) continue;
            expect(
              violationsOf(`${place}/content/${pointerTo(type)}/schema`, example),
              place,
            ).to.equal(undefined);
          }
        }
      });

      it(`${name} documents its success status and its problems`, () => {
        const successes = Object.keys(operation.responses).filter(status => status.startsWith('2'));
        expect(successes).to.deep.equal([
          ...new Set([String(route.status), ...(route.mayBeEmpty ? ['204'] : [])]),
        ]);

        expect(operation.responses).to.include.keys('400', '429', '500', '503');
        for (const [status, { $ref }] of Object.entries(operation.responses)) {
          if (Number(status) >= 400) {
            expect($ref).to.match(new RegExp(`^#/components/responses/Problem${status}\\b`));
          }
        }
      });
    });
  }

  it('the schema of each problem has the members of all, its status and its codes', () => {
    const found = Object.entries(document.components.schemas as Record<string, Schema>).filter(
      ([name]) => name.startsWith('Problem4') || name.startsWith('Problem5'),
    );

    expect(found).to.have.length.above(30);
    for (const [name, { properties = {} }] of found) {
      expect(Object.keys(properties), name).to.deep.equal(Object.keys(problemSchema.properties));
      expect(name).to.include(String(properties.status?.const));

      for (const code of properties.code?.enum ?? []) {
        expect(problems).to.have.property(String(code));
        expect(problems[code as keyof typeof problems].status).to.equal(properties.status?.const);
      }
    }
  });
});

describe('OpenAPI document and running service', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');

  it('the service serves the document that the script prints', async () => {
    const { headers, status } = await world.anonymous.get('/docs/openapi.json');
    const served = await (await fetch(`${world.url}/docs/openapi.json`)).text();
    expect(status).to.equal(200);
    expect(headers.get('content-type')).to.equal('application/json; charset=utf-8');
    expect(served).to.equal(text);
  });

  // The test client throws when a response differs from the document (support/contract.ts).
  it('every endpoint responds as documented when records are read, created, changed and deleted', async () => {
    await callEveryEndpoint(admin, world);
    const succeeded = (name: string, { responses }: Operation) =>
      Object.keys(responses).some(
        status => status.startsWith('2') && seenStatuses.get(name)?.has(Number(status)),
      );
    const withoutSuccess = operations
      .filter(({ name, operation }) => !coveredElsewhere.test(name) && !succeeded(name, operation))
      .map(({ name }) => name);
    expect(withoutSuccess).to.deep.equal([]);
  });

  it('a parameter that is sent with its default gets the response of a request without it', async () => {
    for (let number = 0; number < 21; number++) {
      await admin.post('/api/v1/OrderStatuses', { Name: `Status ${number}` }); // a full page
    }
    const lists = operations.flatMap(({ name, path, operation }) => {
      const sent = operation.parameters.flatMap(parameter => {
        const { default: value } = parameter.schema as { default?: unknown };
        return value === undefined ? [] : [`${parameter.name}=${value}`];
      });
      const isCalled = name.startsWith('GET') && !path.includes('{') && sent.length > 0;
      return isCalled ? [{ path, query: sent.join('&') }] : [];
    });

    expect(lists).to.have.length.above(15);
    for (const { path, query } of lists) {
      const [plain, same] = [await admin.get(path), await admin.get(`${path}?${query}`)];
      expect(same.status, path).to.equal(plain.status);
      expect(same.body, `${path}?${query}`).to.deep.equal(plain.body);
      expect(same.headers.has('link'), `${path}?${query}`).to.equal(plain.headers.has('link'));
    }
  });

  it('every endpoint responds as documented to missing credentials, missing records and invalid input', async () => {
    const withoutPermission = await world.loginAs(world.acme, { permissions: [] });
    const tenantHeader = { 'X-Tenant': world.acme.guid };
    const problemStatuses = new Map<string, Set<number>>();

    for (const { name, path } of operations) {
      const [method = ''] = name.split(' ');
      const address = path.replace(/\{(\w*[cC]ode)\}/, 'none').replace(/\{\w+\}/g, '0');
      // the first ends the session, the second does not end
      const isNotCalled = /\/(logout|stream)$/.test(path);

      const responses = [
        await world.anonymous.send(method, address),
        await world.anonymous.send(
          method,
          address,
          method === 'GET' ? undefined : '{',
          tenantHeader,
        ),
        ...(isNotCalled ? [] : [await withoutPermission.send(method, address)]),
        ...(isNotCalled
          ? []
          : [await admin.send(method, address, method === 'GET' ? undefined : {})]),
        await admin.send(
          method,
          `${address}?limit=0&limit=1&includeDeleted=x`,
          method === 'GET' ? undefined : 'null',
          {
            'Content-Type': 'text/plain',
            ...(isNotCalled ? { Authorization: 'Bearer x.y.z' } : {}),
          },
        ),
      ];

      problemStatuses.set(
        name,
        new Set(responses.map(({ status }) => status).filter(status => status >= 400)),
      );
    }

    for (const [name, statuses] of problemStatuses) {
      expect([...statuses].join(), name).to.match(/401|403/);
    }
    expect([...new Set([...problemStatuses.values()].flatMap(set => [...set]))]).to.include.members(
      [400, 401, 403, 404, 415],
    );
  });
});

async function importCurrency(client: Client): Promise<void> {
  const query = '/api/v1/Imports?resource=Currency';
  const { status, body } = await client.post(query, 'Code,Name\nNOK,Krone\n', {
    'Content-Type': 'text/csv',
  });
  expect(status).to.equal(200);
  expect(body.Applied).to.equal(true);
}

/** `/api/v1/Countries/code/{code}` → `/api/v1/Countries`. */
function collectionOf(path: string): string {
  return path.split('/').slice(0, 4).join('/');
}

/**
 * Calls every endpoint with valid input. Creates a record before the records that refer to it.
 */
async function callEveryEndpoint(client: Client, world: World): Promise<void> {
  const created = new Map<
    string,
    { Id?: number; CountryCode?: string; Code?: string; PromoCode?: string }
  >();

  for (const { path, operation } of operations.filter(({ name }) => name.startsWith('POST'))) {
    if (path.includes('/auth/') || path.includes('{') || ofKeys.test(path)) continue;
    if (path.endsWith('/Imports')) {
      await importCurrency(client);
      continue;
    }

    const body = operation.requestBody?.content['application/json']?.example;
    const entity = created.get('/api/v1/Entities')?.Id ?? 1;

    const response = await client.post(
      path,
      'EntityId' in (body as object) ? { ...(body as object), EntityId: entity } : body,
    );
    expect(response.status, path).to.equal(201);
    created.set(path, response.body);
  }

  const address = (path: string): string => {
    const record = created.get(collectionOf(path)) ?? {};
    const keys: Record<string, unknown> = {
      id: record.Id ?? 1,
      entityId: created.get('/api/v1/Entities')?.Id,
      code: record.CountryCode ?? record.Code,
      promoCode: record.PromoCode,
    };
    return path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(keys[name])));
  };

  for (const { name, path } of operations.filter(
    ({ name, path }) => name.startsWith('POST') && path.includes('{'),
  )) {
    if (coveredElsewhere.test(name)) continue;
    expect((await client.post(address(path))).status, path).to.equal(
      path.endsWith('/used') ? 201 : 200,
    );
  }

  for (const { name, path, operation } of operations) {
    if (/\/auth\/|\/Data\/|\/stream$/.test(path) || ofKeys.test(path)) continue;
    const body = operation.requestBody?.content['application/json']?.example;
    if (name.startsWith('GET')) {
      const response = await client.get(address(path));
      expect(response.status, name).to.equal(200);
      const etag = response.headers.get('etag');
      if (etag) await expectNotModified(client, address(path), etag);
    }
    if (name.startsWith('PATCH')) {
      expect((await client.patch(address(path), body)).status, name).to.equal(200);
    }
    if (name.startsWith('PUT')) {
      // Later requests find the record by its code.
      const record = created.get(collectionOf(path)) ?? {};
      const codes = Object.entries(record).filter(([field]) =>
        /^(Country|Promo)?Code$/.test(field),
      );
      const sent = { ...(body as object), ...Object.fromEntries(codes) };
      expect((await client.put(address(path), sent)).status, name).to.equal(200);
    }
  }
  // Deletes new records, because other records refer to the first ones.
  for (const { path } of operations.filter(
    ({ name, path }) => name.startsWith('DELETE') && !path.includes('/auth/') && !ofKeys.test(path),
  )) {
    const collection = collectionOf(path);
    const example =
      document.paths[collection]?.post?.requestBody?.content['application/json']?.example;
    const otherCodes: Record<string, string> = {
      CountryCode: 'XX',
      Code: 'XTS',
      PromoCode: 'OTHER',
      Name: 'Other',
    };
    const body = Object.entries(example ?? {}).map(([name, value]) => [
      name,
      otherCodes[name] ?? value,
    ]);
    created.set(collection, (await client.post(collection, Object.fromEntries(body))).body);
    expect((await client.delete(address(path))).status, path).to.equal(204);
  }
  const guest = await world.login(world.acme);
  await guest.get('/api/v1/auth/me');
  const { refreshToken } = guest.tokens ?? {};
  await world.anonymous.post(
    '/api/v1/auth/refresh',
    { refreshToken },
    { 'X-Tenant': world.acme.guid },
  );
  await guest.post('/api/v1/auth/logout');
}

/**
 * Reads a representation again, which is 304. The service itself changes some records between
 * two reads, such as a webhook that it delivers to: the response is then 200 with another ETag,
 * of which the next read is 304.
 */
async function expectNotModified(client: Client, path: string, etag: string): Promise<void> {
  let tag = etag;

  const response = await eventually(async () => {
    const again = await client.get(path, { 'If-None-Match': tag });
    const former = tag;
    tag = again.headers.get('etag') ?? former;

    return again.status === 200 && tag !== former ? undefined : again;
  });

  expect(response.status, path).to.equal(304);
}
