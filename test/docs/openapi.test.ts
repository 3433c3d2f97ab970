import { Validator } from '@seriousme/openapi-schema-validator';
import { expect } from 'chai';
import type { z } from 'zod';
import { openApiText } from '../../src/docs/openapi-document.ts';
import { problems } from '../../src/errors.ts';
import type { Client } from '../support/client.ts';
import { runScript } from '../support/command-line.ts';
import { document, type Operation, routes, seenStatuses } from '../support/contract.ts';
import { createWorld, type World } from '../support/world.ts';

const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]) => ({ name: `${method.toUpperCase()} ${path}`, path, operation })),
);
const written = openApiText(routes);

/** They need mail and secrets. */
const testedOnTheirOwn = /\/auth\/(?!login|refresh|me|logout)|\/GenerateToken/;

describe('The OpenAPI document', () => {
  it('is valid OpenAPI 3.1', async () => {
    const validator = new Validator();
    const { valid, errors } = await validator.validate(JSON.parse(written));
    expect(errors, JSON.stringify(errors)).to.equal(undefined);
    expect(valid).to.equal(true);
    expect(validator.version).to.equal('3.1');
  });

  it('is printed without a database or any setting', async () => {
    const { code, stdout, stderr } = await runScript('scripts/openapi.ts', [], {});
    expect(stderr).to.equal('');
    expect(code).to.equal(0);
    expect(stdout).to.equal(written);
  });

  it('describes exactly the routes that are mounted', () => {
    const mounted = routes.map(({ method, path }) => `${method} ${path.replace(/:(\w+)/g, '{$1}')}`);
    expect(operations.map(({ name }) => name)).to.have.members(mounted);
    expect(new Set(mounted).size).to.equal(mounted.length);
  });

  it('gives every operation a name of its own', () => {
    const ids = operations.map(({ operation }) => operation.operationId);
    expect(new Set(ids).size).to.equal(ids.length);
    for (const id of ids) expect(id).to.match(/^[a-z][A-Za-z]+$/);
  });

  it('holds no reference that leads nowhere, and no name of a database, a host or a file', () => {
    for (const [, pointer = ''] of written.matchAll(/"\$ref": "#\/([^"]+)"/g)) {
      const target = pointer.split('/').reduce<unknown>((at, key) => (at as Record<string, unknown>)?.[key], document);
      expect(target, pointer).to.be.an('object');
    }
    expect(written).not.to.match(/localhost|127\.0\.0\.1|https?:|postgres|node_modules|\.ts\b/);
  });

  for (const { name, path, operation } of operations) {
    describe(name, () => {
      const route = routes.find(
        route => `${route.method} ${route.path.replace(/:(\w+)/g, '{$1}')}` === name,
      ) as (typeof routes)[number];

      it('says what it does, and who may call', () => {
        expect(operation.summary).to.match(/^[A-Z].*[^.]$/);
        expect(operation.summary).not.to.match(/\b[Aa] [AEIOaeio]/);
        expect(operation.tags).to.have.length(1);
        const isPermission = String(route.access).includes('.');
        const security = operation.security ?? document.security;
        if (route.access === 'anonymous') expect(security).to.deep.equal([]);
        if (route.access === 'user' || isPermission) expect(security).to.deep.equal([{ bearer: [] }]);
        expect(operation['x-permission']).to.equal(isPermission ? route.access : undefined);
        if (isPermission) expect(operation.description).to.include(`\`${route.access}\``);
      });

      it('names its parameters', () => {
        const named = (place: string) => operation.parameters.filter(({ in: where }) => where === place);
        expect(named('path').map(({ name }) => name)).to.deep.equal([...path.matchAll(/\{(\w+)\}/g)].map(([, n]) => n));
        expect(named('path').every(({ required }) => required)).to.equal(true);
        expect(named('query').map(({ name }) => name)).to.deep.equal(Object.keys(route.query?.shape ?? {}));
        for (const parameter of operation.parameters) expect(parameter).to.have.property('description').that.is.ok;
      });

      it('shows a body that its own contract accepts', () => {
        const content = operation.requestBody?.content['application/json'];
        expect(content !== undefined).to.equal(route.body !== undefined);
        if (!content) return;
        expect(content.example).to.be.an('object').that.is.not.empty;
        const accepted = (route.body as z.ZodObject).safeParse(content.example);
        expect(accepted.error?.issues).to.equal(undefined);
        expect(Object.keys(accepted.data ?? {})).to.include.members(Object.keys(content.example as object));
      });

      it('tells its success and the problems that can come of it', () => {
        const successes = Object.keys(operation.responses).filter(status => status.startsWith('2'));
        expect(successes).to.deep.equal([...new Set([String(route.status), ...(route.mayBeEmpty ? ['204'] : [])])]);
        expect(operation.responses).to.include.keys('401', '429', '500', '503');
        for (const [status, { $ref }] of Object.entries(operation.responses)) {
          if (Number(status) >= 400) expect($ref).to.equal(`#/components/responses/Problem${status}`);
        }
      });
    });
  }

  it('names every code that a problem can carry', () => {
    const { properties } = document.components.schemas.Problem as { properties: { code: { enum: string[] } } };
    expect(properties.code.enum).to.have.members(Object.keys(problems));
  });
});

describe('The service', () => {
  let world: World;
  let admin: Client;

  before(async () => {
    world = await createWorld();
    admin = await world.login(world.acme);
  });
  after(() => world.close());

  it('serves the very document that is printed', async () => {
    const { headers, status } = await world.anonymous.get('/docs/openapi.json');
    const served = await (await fetch(`${world.url}/docs/openapi.json`)).text();
    expect(status).to.equal(200);
    expect(headers.get('content-type')).to.equal('application/json; charset=utf-8');
    expect(served).to.equal(written);
  });

  // The client throws at any answer that is not as documented: see support/contract.ts.
  it('answers at every endpoint as documented: found, made, changed, deleted', async () => {
    await walk(admin, world);
    const succeeded = (name: string, { responses }: Operation) =>
      Object.keys(responses).some(status => status.startsWith('2') && seenStatuses.get(name)?.has(Number(status)));
    const left = operations
      .filter(({ name, operation }) => !testedOnTheirOwn.test(name) && !succeeded(name, operation))
      .map(({ name }) => name);
    expect(left).to.deep.equal([]);
  });

  it('answers at every endpoint as documented: without a token, without permission, not found, not valid', async () => {
    const nobody = world.anonymous;
    const powerless = await world.loginAs(world.acme, { permissions: [] });
    const wrong = { 'X-Tenant': world.acme.guid };
    const problemsOf = new Map<string, Set<number>>();
    for (const { name, path } of operations) {
      const [method = ''] = name.split(' ');
      const at = path.replace(/\{(\w*[cC]ode)\}/, 'none').replace(/\{\w+\}/g, '0');
      const answers = [
        await nobody.send(method, at),
        await nobody.send(method, at, method === 'GET' ? undefined : '{', wrong),
        ...(path.endsWith('/logout') ? [] : [await powerless.send(method, at)]),
        ...(path.endsWith('/logout') ? [] : [await admin.send(method, at, method === 'GET' ? undefined : {})]),
        await admin.send(method, `${at}?limit=0&limit=1&includeDeleted=x`, method === 'GET' ? undefined : 'null', {
          'Content-Type': 'text/plain',
          ...(path.endsWith('/logout') ? { Authorization: 'Bearer x.y.z' } : {}),
        }),
      ];
      problemsOf.set(name, new Set(answers.map(({ status }) => status).filter(status => status >= 400)));
    }
    for (const [name, statuses] of problemsOf) expect([...statuses].join(), name).to.match(/401|403/);
    expect([...new Set([...problemsOf.values()].flatMap(set => [...set]))]).to.include.members([
      400, 401, 403, 404, 415,
    ]);
  });
});

/** `/api/v1/Countries/code/{code}` → `/api/v1/Countries`. */
function collectionOf(path: string): string {
  return path.split('/').slice(0, 4).join('/');
}

/** Calls every endpoint so that it succeeds. Records that are needed by others come first. */
async function walk(client: Client, world: World): Promise<void> {
  const made = new Map<string, { Id?: number; CountryCode?: string; Code?: string; PromoCode?: string }>();
  for (const { path, operation } of operations.filter(({ name }) => name.startsWith('POST'))) {
    if (path.includes('/auth/') || path.includes('{')) continue;
    const body = operation.requestBody?.content['application/json']?.example;
    const entity = made.get('/api/v1/Entities')?.Id ?? 1;
    const answer = await client.post(
      path,
      'EntityId' in (body as object) ? { ...(body as object), EntityId: entity } : body,
    );
    expect(answer.status, path).to.equal(201);
    made.set(path, answer.body);
  }
  const address = (path: string): string => {
    const record = made.get(collectionOf(path)) ?? {};
    const keys: Record<string, unknown> = {
      id: record.Id ?? 1,
      entityId: made.get('/api/v1/Entities')?.Id,
      code: record.CountryCode ?? record.Code,
      promoCode: record.PromoCode,
    };
    return path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(keys[name])));
  };
  for (const { path } of operations.filter(({ name, path }) => name.startsWith('POST') && path.includes('{'))) {
    expect((await client.post(address(path))).status, path).to.equal(201);
  }
  for (const { name, path, operation } of operations) {
    if (/\/auth\/|\/Data\//.test(path)) continue;
    const body = operation.requestBody?.content['application/json']?.example;
    if (name.startsWith('GET')) {
      const answer = await client.get(address(path));
      expect(answer.status, name).to.equal(200);
      const etag = answer.headers.get('etag');
      if (etag) expect((await client.get(address(path), { 'If-None-Match': etag })).status, name).to.equal(304);
    }
    if (name.startsWith('PUT')) expect((await client.put(address(path), body)).status, name).to.equal(200);
  }
  // What nothing refers to can be deleted.
  for (const { path } of operations.filter(({ name, path }) => name.startsWith('DELETE') && !path.includes('/auth/'))) {
    const collection = collectionOf(path);
    const example = document.paths[collection]?.post?.requestBody?.content['application/json']?.example;
    const others: Record<string, string> = { CountryCode: 'XX', Code: 'XTS', PromoCode: 'OTHER' };
    const body = Object.entries(example ?? {}).map(([name, value]) => [name, others[name] ?? value]);
    made.set(collection, (await client.post(collection, Object.fromEntries(body))).body);
    expect((await client.delete(address(path))).status, path).to.equal(204);
  }
  const guest = await world.login(world.acme);
  await guest.get('/api/v1/auth/me');
  const { refreshToken } = guest.tokens ?? {};
  await world.anonymous.post('/api/v1/auth/refresh', { refreshToken }, { 'X-Tenant': world.acme.guid });
  await guest.post('/api/v1/auth/logout');
}
