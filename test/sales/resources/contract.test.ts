import { expect } from 'chai';
import { permissions } from '../../../src/control/permissions.ts';
import { resources } from '../../../src/sales/resources/index.ts';
import type { ApiResponse, Client } from '../../support/client.ts';
import { invalidIds } from '../../support/invalid-ids.ts';
import { sql, type TestTenant, useLogin, useWorld } from '../../support/world.ts';
import {
  createReferences,
  type Example,
  examples,
  requiredOnly,
  responseFields,
} from './examples.ts';
import { auditOf, expectRefused, expectTaken, newestAudit, withField } from './expect.ts';
import type { References } from './field-values.ts';

type Body = Record<string, unknown>;

const isoTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
const times = (n: number) => Array.from({ length: n });

/** Codes with a special meaning in a path, a query string or a pattern. */
const awkwardCodes = [
  'a/b',
  '//',
  '%',
  '50%',
  '%2F',
  '%zz',
  '_',
  'two words',
  'a+b',
  'a?b#c',
  'a&b=c',
  'a;b',
  '\\',
  '\\u0041',
  '*',
  `it's`,
  '"quoted"',
  '`',
  '$1',
  '{{7*7}}',
  '<b>',
  "';DROP TABLE x;--",
  'Ålesund',
  '日本',
  '🦄',
  'null',
  '0',
];

const invalidCodes = [
  'nowhere',
  '%00',
  'a%00',
  '%zz',
  '%',
  '%E0%A4%A',
  '%ED%A0%80',
  '%20',
  'x'.repeat(51),
  'x'.repeat(5_000),
];

/** Each of them tests its share of the awkward codes. */
const byCodes = Object.keys(examples).filter(name => examples[name]?.lookup);

describe('contract of the resources', () => {
  // 20 requests at a time, on a busy machine too
  const world = useWorld({ ACQUIRE_TIMEOUT_MS: '8000' });
  const admin = useLogin(world, 'acme');
  const globex = useLogin(world, 'globex');
  /** A tenant in which no test makes a record. */
  let vacant: TestTenant;
  let vacantAdmin: Client;
  let adminGuid: string;
  let refs: References;
  const clients = new Map<string, Promise<Client>>();

  before(async () => {
    adminGuid = (await admin.get('/api/v1/auth/me')).body.userGuid;
    refs = await createReferences(admin);
    vacant = await world.provision('vacant');
    vacantAdmin = await world.login(vacant);
  });

  /** Returns a client of an acme user with exactly these permissions. */
  const userWith = (...granted: string[]): Promise<Client> => {
    const key = granted.join();
    const client = clients.get(key) ?? world.loginAs(world.acme, { permissions: granted });
    clients.set(key, client);
    return client;
  };

  it('every resource of the catalogue has an example, and every example a resource', () => {
    expect(Object.keys(examples)).to.have.members(resources.map(({ name }) => name));
  });

  for (const { name, routes } of resources) {
    describe(name, () => {
      const example = examples[name] as Example;
      if (!example) return; // the test above fails
      const { path, key, unique, fields, missingProblem, softDelete, paged, partial } = example;
      const byCode = key !== 'Id';
      const required = Object.keys(fields).filter(field => fields[field]?.required);

      const recordPath = (record: Body): string =>
        byCode
          ? `${path}/code/${encodeURIComponent(String(record[key]))}`
          : `${path}/${record[key]}`;
      const create = async (body: Body = example.first(refs), client = admin): Promise<Body> => {
        const response = await client.post(path, body);
        expect(response.status, JSON.stringify(response.body)).to.equal(201);
        return response.body;
      };
      const replace = (record: Body, body: Body | string, client = admin): Promise<ApiResponse> =>
        client.put(byCode ? path : recordPath(record), body);
      /** Returns a body with which PUT finds this record. */
      const bodyFor = (record: Body, body: Body): Body =>
        byCode ? { ...body, [key]: record[key] } : body;
      const read = async (record: Body): Promise<Body> => {
        const response = await admin.get(recordPath(record));
        expect(response.status).to.equal(200);
        return response.body;
      };
      const list = async (client = admin): Promise<Body[]> => {
        const response = await client.get(paged ? `${path}?limit=1000` : path);
        expect(response.status).to.equal(200);
        return response.body;
      };

      before(() => create()); // a list without records would be a 404

      it(`${name} accepts the fields of its example, and returns those of its view in order`, async () => {
        const contract = routes.find(route => route.method === 'POST' && route.path === path)?.body;
        expect(Object.keys(contract?.shape ?? {})).to.deep.equal(Object.keys(fields));
        expect(Object.keys(await create())).to.deep.equal(responseFields(example));
      });

      it(`the ${name} list without records is ${paged ? 'an empty 200' : 'a 404'}`, async () => {
        if (name === 'EntityStatus') {
          await sql(vacant, 'delete from default_entity_status; delete from entity_statuses');
        }

        const response = await vacantAdmin.get(path);

        if (paged) {
          expect(response.status).to.equal(200);
          expect(response.body).to.deep.equal([]);
        } else {
          expectRefused(response, 404, 'not_found');
        }
      });

      it(`a POST of ${name} creates a record with 201, and its Location returns the record`, async () => {
        const body = example.first(refs);
        const created = await admin.post(path, body);

        expect(created.status).to.equal(201);
        expect(created.body).to.deep.include(body);
        expect(created.headers.get('cache-control')).to.equal('no-store');
        expect(created.body.CreatedAt).to.match(isoTime);
        if (!byCode) expect(created.body.Id).to.be.a('number').above(0);
        expect(created.headers.get('location')).to.equal(recordPath(created.body));
        expect(await read(created.body)).to.deep.equal(created.body);
        expect(await list()).to.deep.include(created.body);
      });

      it(`a POST of ${name} sets optional fields that are not sent to their defaults`, async () => {
        const body = requiredOnly(example, example.first(refs));
        const record = await create(body);
        expect(record).to.deep.include({ ...body, ...example.defaults });
        expect(await read(record)).to.deep.equal(record);
        if (!fields.CreatedAt) return;
        expect(Date.parse(String(record.CreatedAt))).to.be.closeTo(Date.now(), 60_000);
      });

      it(`a PUT of ${name} returns 200 and the whole changed record`, async () => {
        const record = await create();
        const body = bodyFor(record, example.second(refs));
        const response = await replace(record, body);

        expect(response.status).to.equal(200);
        expect(response.headers.get('cache-control')).to.equal('no-store');
        expect(Object.keys(response.body)).to.deep.equal(responseFields(example));
        expect(response.body).to.deep.include({
          CreatedAt: record.CreatedAt,
          ...body,
          [key]: record[key],
        });
        expect(await read(record)).to.deep.equal(response.body);
      });

      if (!partial) {
        it(`a PUT of ${name} resets optional fields that are not sent to their defaults`, async () => {
          const record = await create();
          const body = bodyFor(record, requiredOnly(example, example.first(refs)));
          const { status, body: changed } = await replace(record, body);
          expect(status).to.equal(200);
          expect(changed).to.deep.include({ ...example.defaults, CreatedAt: record.CreatedAt });
        });
      }

      it(`a DELETE of ${name} returns 204 without a body, and the record no longer exists`, async () => {
        const record = await create();
        const response = await admin.delete(recordPath(record));

        expect(response.status).to.equal(204);
        expect(response.body).to.equal('');
        expect(response.headers.get('content-type')).to.equal(null);

        expectRefused(await admin.get(recordPath(record)), 404, 'not_found');
        expectRefused(await admin.delete(recordPath(record)), ...missingProblem);
        expectRefused(
          await replace(record, bodyFor(record, example.second(refs))),
          ...missingProblem,
        );

        const records = await admin.get(path);
        if (records.status === 200) {
          expect(records.body.map((each: Body) => each[key])).not.to.include(record[key]);
        }
      });

      it(`a request for ${name} with an impossible key gets the same problem as one for a missing record`, async () => {
        const audited = await newestAudit(admin);
        const before = await list();

        for (const id of byCode ? invalidCodes : invalidIds) {
          const url = byCode ? `${path}/code/${id}` : `${path}/${id}`;
          const body = byCode
            ? { ...example.second(refs), [key]: 'nowhere' }
            : example.second(refs);

          const responses = [
            await admin.get(url),
            await admin.put(byCode ? path : url, body),
            await admin.delete(url),
          ];

          const statuses = responses.map(({ status, body }) => [status, body.code]);
          expect(statuses, id).to.deep.equal([[404, 'not_found'], missingProblem, missingProblem]);
        }

        expect(await list()).to.deep.equal(before);
        expect(await newestAudit(admin)).to.equal(audited);
      });

      it(`a ${name} record cannot be read, changed or deleted by another tenant`, async () => {
        const record = await create();
        const foreign = recordPath(record);

        // In globex, other tests make records, which may have the same id.
        expectRefused(await vacantAdmin.get(foreign), 404, 'not_found');
        expectRefused(
          await replace(
            record,
            bodyFor(record, requiredOnly(example, example.first(refs))),
            vacantAdmin,
          ),
          ...missingProblem,
        );
        expectRefused(await vacantAdmin.delete(foreign), ...missingProblem);

        expect(await read(record)).to.deep.equal(record);
      });

      it(`the ${name} list is in its documented order, ties by id, after creations and changes`, async () => {
        const records: Body[] = [];
        for (const n of [3, 1, 5, 2, 4]) {
          records.push(await create({ ...example.first(refs), ...example.nth(n) }));
        }
        if (!unique) records.push(await create({ ...example.first(refs), ...example.nth(3) }));

        // PostgreSQL moves a changed row to the end of its table.
        const third = records[0] as Body;
        await replace(third, bodyFor(third, { ...example.second(refs), ...example.nth(3) }));

        const ids = new Set(records.map(record => record[key]));
        const listed = (await list()).filter(record => ids.has(record[key]));
        const inOrder = listed.toSorted((a, b) => {
          const field = example.orderBy.find(each => a[each] !== b[each]) ?? key;
          return (a[field] as number) < (b[field] as number) ? -1 : 1;
        });

        expect(listed.map(record => record[key])).to.deep.equal(inOrder.map(record => record[key]));
        expect(listed).to.have.lengthOf(ids.size);

        if (paged) return;
        const [first] = listed;
        expect(first).to.deep.include(example.nth(1));
      });

      if (!partial) {
        it(`a PUT of ${name} without a required field is refused and leaves no audit entry`, async () => {
          const record = await create();
          const audited = await newestAudit(admin);
          const body = bodyFor(record, example.second(refs));

          for (const field of required) {
            const { [field]: _, ...incomplete } = body;
            expectRefused(await replace(record, incomplete), 400, 'validation_failed', [field]);
          }

          expectRefused(await replace(record, {}), 400, 'validation_failed', required);
          expect(await read(record)).to.deep.equal(record);
          expect(await newestAudit(admin)).to.equal(audited);
        });
      }

      it(`a POST of ${name} without required fields names each and leaves no audit entry`, async () => {
        const before = await list();
        const audited = await newestAudit(admin);
        const body = example.first(refs);

        for (const field of required) {
          const { [field]: _, ...incomplete } = body;
          expectRefused(await admin.post(path, incomplete), 400, 'validation_failed', [field]);
        }
        expectRefused(await admin.post(path, {}), 400, 'validation_failed', required);
        expectRefused(await admin.post(path), 400, 'validation_failed', required);
        expectRefused(await admin.post(path, ''), 400, 'validation_failed', required);

        expect(await list()).to.deep.equal(before);
        expect(await newestAudit(admin)).to.equal(audited);
      });

      it(`${name} accepts camelCase field names, and both spellings of a field if their values are equal`, async () => {
        const camelCase = (body: Body): Body =>
          Object.fromEntries(
            Object.entries(body).map(([field, value]) => [
              field[0]?.toLowerCase() + field.slice(1),
              value,
            ]),
          );

        const body = example.first(refs);
        const record = await create(camelCase(body));
        expect(record).to.deep.include(body);

        const changed = bodyFor(record, example.second(refs));
        expect((await replace(record, camelCase(changed))).body).to.deep.include(changed);

        const again = bodyFor(record, example.first(refs));
        expect((await replace(record, { ...again, ...camelCase(again) })).body).to.deep.include(
          again,
        );
      });

      it(`${name} refuses two spellings of a field with different values, and names the field`, async () => {
        const before = await list();
        const body = example.first(refs);

        for (const field of Object.keys(fields)) {
          const camel = field[0]?.toLowerCase() + field.slice(1);
          for (const other of [null, 'another', 17, [], {}]) {
            const both = { ...body, [camel]: other };
            if (JSON.stringify(other) === JSON.stringify(body[field])) continue;
            expectRefused(await admin.post(path, both), 400, 'validation_failed', [field]);
          }
        }

        expect(await list()).to.deep.equal(before);
      });

      it(`${name} ignores unknown fields, fields in other letter cases, and fields that the server sets`, async () => {
        const ignored: Body = {
          Id: 999_999,
          id: 999_999,
          IsDeleted: true,
          isDeleted: true,
          DeletedAt: '2001-01-01T00:00:00Z',
          StatusTitle: 'Mine',
          tenantId: 1,
          TenantGuid: world.globex.guid,
          RecordedBy: 1,
          toString: 1,
          constructor: {},
          ...(fields.CreatedAt
            ? {}
            : { CreatedAt: '2001-01-01T00:00:00Z', createdAt: '2002-01-01T00:00:00Z' }),
        };
        for (const field of Object.keys(fields)) ignored[field.toUpperCase()] = 'ignored';

        const body = example.first(refs);
        const plain = await create(example.first(refs));
        const record = await create({ ...ignored, ...body });

        const serverSet = responseFields(example).filter(
          field => !(field in fields) && !['Id', 'CreatedAt'].includes(field),
        );
        for (const field of serverSet) expect(record[field], field).to.deep.equal(plain[field]);
        expect(record).to.deep.include(body).and.not.include({ Id: 999_999 });
        if (!fields.CreatedAt) {
          expect(Date.parse(String(record.CreatedAt))).to.be.closeTo(Date.now(), 60_000);
        }

        const { body: changed } = await replace(record, bodyFor(record, { ...ignored, ...body }));
        expect(changed).to.deep.equal(record);
        expect(await read(record)).to.deep.equal(record);
      });

      for (const [field, { good, bad }] of Object.entries(fields)) {
        it(`${name}.${field} stores and returns every allowed value exactly`, async () => {
          const record = await create();

          for (const [json, stored] of good(refs)) {
            const created = await admin.post(path, withField(example.first(refs), field, json));
            expect(created.status, json).to.equal(201);
            expect(created.body[field], json).to.deep.equal(stored);
            expect((await read(created.body))[field], json).to.deep.equal(stored);
          }

          if (byCode && field === key) return; // PUT finds the record by this field
          for (const [json, stored] of good(refs)) {
            const changed = await replace(
              record,
              withField(bodyFor(record, example.first(refs)), field, json),
            );
            expect(changed.status, json).to.equal(200);
            expect(changed.body[field], json).to.deep.equal(stored);
            expect((await read(record))[field], json).to.deep.equal(stored);
          }
        });

        it(`${name}.${field} refuses every other value with an error for the field, and stores nothing`, async () => {
          const record = await create();
          const before = await list();
          const audited = await newestAudit(admin);

          await Promise.all(
            bad.flatMap(json => [
              admin
                .post(path, withField(example.first(refs), field, json))
                .then(response => expectRefused(response, 400, 'validation_failed', [field])),
              replace(record, withField(bodyFor(record, example.first(refs)), field, json)).then(
                response => expectRefused(response, 400, 'validation_failed', [field]),
              ),
            ]),
          );

          expect(await list()).to.deep.equal(before);
          expect(await newestAudit(admin)).to.equal(audited);
        });
      }

      const requirement = example.read === 'user' ? 'a token' : `the permission ${example.read}`;
      it(`reading ${name} requires ${requirement}`, async () => {
        const record = await create();
        const allowed = await userWith(...(example.read === 'user' ? [] : [example.read]));

        for (const url of [path, recordPath(record)]) {
          expect((await allowed.get(url)).status).to.equal(200);
          expectRefused(
            await world.anonymous.get(url, { 'X-Tenant': world.acme.guid }),
            401,
            'unauthorized',
          );

          if (example.read === 'user') continue;
          const others = await userWith(
            ...permissions.filter(permission => permission !== example.read),
          );
          expectRefused(await others.get(url), 403, 'forbidden');
        }
      });

      it(`changing ${name} requires the permission ${example.write} and no other`, async () => {
        const record = await create();
        const before = await list();
        const audited = await newestAudit(admin);
        const others = await userWith(
          ...permissions.filter(permission => permission !== example.write),
        );

        const refused = [
          await others.post(path, example.first(refs)),
          await others.post(path, {}),
          await replace(record, bodyFor(record, example.second(refs)), others),
          await others.delete(recordPath(record)),
        ];

        for (const response of refused) {
          expectRefused(response, 403, 'forbidden');
          expect(response.headers.get('www-authenticate')).to.include(
            `error="insufficient_scope", scope="${example.write}"`,
          );
        }
        expect(await list()).to.deep.equal(before);
        expect(await newestAudit(admin)).to.equal(audited);

        const allowed = await userWith(example.write);
        const own = await create(example.first(refs), allowed);
        expect((await replace(own, bodyFor(own, example.second(refs)), allowed)).status).to.equal(
          200,
        );
        expect((await allowed.delete(recordPath(own))).status).to.equal(204);
      });

      it(`each change of ${name} has one audit entry with user, address and both states`, async () => {
        const stored = (record: Body): Body =>
          Object.fromEntries(
            Object.entries(record).filter(
              ([field]) => !Object.values(example.computed ?? {}).includes(field),
            ),
          );

        const created = await admin.post(path, example.first(refs));
        const record: Body = created.body;
        const body = bodyFor(record, example.second(refs));
        const changed = await replace(record, body);
        expect((await replace(record, body)).body).to.deep.equal(changed.body);

        const deleted = await admin.delete(recordPath(record));
        await admin.delete(recordPath(record));

        const entries = await auditOf(admin, name, record[key]);
        expect(entries.map(({ Action }) => Action)).to.deep.equal(['create', 'update', 'delete']);

        const [creation, update, deletion] = entries;
        expect(creation?.Before).to.equal(null);
        expect(creation?.After).to.deep.equal(stored(record));
        expect(update?.Before).to.deep.equal(stored(record));
        expect(update?.After).to.deep.equal(stored(changed.body));
        expect(deletion?.Before).to.deep.equal(stored(changed.body));
        if (softDelete) {
          expect(deletion?.After).to.deep.include({ [key]: record[key], IsDeleted: true });
        } else {
          expect(deletion?.After).to.equal(null);
        }

        const traces = [created, changed, deleted].map(response =>
          response.headers.get('x-request-id'),
        );

        for (const [index, entry] of entries.entries()) {
          expect(entry).to.include({
            UserGuid: adminGuid,
            IPAddress: '127.0.0.1',
            TraceId: traces[index],
          });
          expect(entry.UserId).to.be.a('number');
          expect(entry.CreatedAt).to.match(isoTime);
        }
      });

      it(`the ETag of ${name} gets a 304 until the record changes`, async () => {
        const record = await create();

        for (const url of [path, recordPath(record)]) {
          const { status, headers } = await admin.get(url);
          expect(status).to.equal(200);
          expect(headers.get('cache-control')).to.equal(
            'private, no-cache, max-age=0, must-revalidate',
          );

          const tag = String(headers.get('etag'));
          expect(tag).to.match(/^"[^"]+"$/);

          const unchanged = await admin.get(url, { 'If-None-Match': tag });
          expect(unchanged.status).to.equal(304);
          expect(unchanged.body).to.equal('');
          expect(unchanged.headers.get('etag')).to.equal(tag);
        }

        const before = await admin.get(recordPath(record));
        await replace(record, bodyFor(record, example.second(refs)));
        const after = await admin.get(recordPath(record), {
          'If-None-Match': String(before.headers.get('etag')),
        });

        expect(after.status).to.equal(200);
        expect(after.headers.get('etag')).not.to.equal(before.headers.get('etag'));
      });

      it(`of 20 concurrent deletions of a ${name} record exactly one succeeds`, async () => {
        const record = await create();
        const responses = await Promise.all(times(20).map(() => admin.delete(recordPath(record))));
        const refused = responses.filter(({ status }) => status !== 204);
        expect(refused).to.have.lengthOf(19);
        for (const response of refused) expectRefused(response, ...missingProblem);
        const entries = await auditOf(admin, name, record[key]);
        expect(entries.map(({ Action }) => Action)).to.deep.equal(['create', 'delete']);
      });

      if (unique) {
        const otherCase = (code: unknown): string => {
          const text = String(code);
          return text === text.toUpperCase() ? text.toLowerCase() : text.toUpperCase();
        };
        // A currency code must be in capital letters.
        const hasCases = name !== 'Currency';

        it(`a second ${name} of the same ${unique} is refused, also in another case or Unicode form`, async () => {
          const record = await create();
          const accented = hasCases
            ? await create({ ...example.first(refs), [unique]: `É-${record[unique]}` })
            : undefined;
          const audited = await newestAudit(admin);

          const taken = [record[unique], ` ${record[unique]} `];
          if (accented) {
            taken.push(
              otherCase(record[unique]),
              `é-${record[unique]}`,
              `E\u0301-${record[unique]}`,
            );
          }

          for (const code of taken) {
            expectTaken(
              await admin.post(path, { ...example.second(refs), [unique]: code }),
              unique,
            );
          }

          expect(await newestAudit(admin)).to.equal(audited);
        });

        if (!byCode) {
          it(`a PUT of ${name} can change the case of its ${unique}, but not take another’s`, async () => {
            const [record, other] = [await create(), await create()];
            const body = { ...example.second(refs), [unique]: other[unique] };
            expectTaken(await replace(record, body), unique);
            expect(await read(record)).to.deep.equal(record);
            expect(await auditOf(admin, name, record.Id)).to.have.lengthOf(1);

            if (!hasCases) return;

            const spelled = otherCase(record[unique]);
            const response = await replace(record, { ...example.first(refs), [unique]: spelled });
            expect(response.status).to.equal(200);
            expect(response.body[unique]).to.equal(spelled);
          });
        }

        it(`two tenants can use the same ${unique} of ${name}`, async () => {
          const body = requiredOnly(example, example.first(refs));
          const others = example.first(await createReferences(globex));
          const otherBody = { ...requiredOnly(example, others), [unique]: body[unique] };

          const own = await create(body);
          const other = await create(otherBody, globex);

          expect(other[unique]).to.equal(own[unique]);
        });

        it(`of 20 concurrent creations of ${name} with the same ${unique} exactly one succeeds`, async () => {
          const code = example.first(refs)[unique];
          const bodies = times(20).map((_, n) => ({
            ...example.first(refs),
            [unique]: hasCases && n % 2 ? otherCase(code) : code,
          }));

          const responses = await Promise.all(bodies.map(body => admin.post(path, body)));
          const [created, ...others] = responses.filter(({ status }) => status === 201);
          expect(others).to.have.lengthOf(0);

          const refused = responses.filter(response => response !== created);
          expect(refused).to.have.lengthOf(19);
          for (const response of refused) expectRefused(response, 400, 'duplicate');

          const same = (record: Body) =>
            String(record[unique]).toLowerCase() === String(code).toLowerCase();
          expect((await list()).filter(same)).to.deep.equal([created?.body]);
          expect(await auditOf(admin, name, created?.body[key])).to.have.lengthOf(1);
        });

        if (!byCode) {
          it(`concurrent PUTs that swap the ${unique} of two ${name} records keep both values`, async () => {
            const [a, b] = [await create(), await create()];
            const swaps = times(3).flatMap(() => [
              replace(a, { ...example.first(refs), [unique]: b[unique] }),
              replace(b, { ...example.first(refs), [unique]: a[unique] }),
            ]);

            for (const response of await Promise.all(swaps)) {
              if (response.status !== 200) expectRefused(response, 400, 'duplicate');
            }

            const codes = [(await read(a))[unique], (await read(b))[unique]];
            expect(codes).to.have.members([a[unique], b[unique]]);
          });
        }
      }

      if (example.lookup) {
        const getByCode = (code: string) => admin.get(`${path}/code/${encodeURIComponent(code)}`);

        it(`a ${name} record is found by its code in any letter case`, async () => {
          const record = await create({
            ...example.first(refs),
            [String(unique)]: `Straße-É ${name}`,
          });

          for (const code of [
            `Straße-É ${name}`,
            `straße-é ${name.toLowerCase()}`,
            `STRAßE-E\u0301 ${name}`,
          ]) {
            const response = await getByCode(code);
            expect(response.status).to.equal(200);
            expect(response.body).to.deep.equal(record);
          }

          for (const code of [`Strasse-É ${name}`, `Straße-É ${name}x`, 'Stra%', 'Straße_É']) {
            expectRefused(await getByCode(code), 404, 'not_found');
          }
        });

        it(`a ${name} record is found, changed and deleted by its code alone, whatever characters the code has`, async () => {
          await create();
          const others = await list();

          for (const code of awkwardCodes.filter(
            (_, index) => index % byCodes.length === byCodes.indexOf(name),
          )) {
            const created = await admin.post(path, {
              ...example.first(refs),
              [String(unique)]: code,
            });
            expect(created.status, code).to.equal(201);

            expect((await getByCode(code)).body).to.deep.equal(created.body);
            expect((await admin.get(String(created.headers.get('location')))).body).to.deep.equal(
              created.body,
            );

            const changes = { ...example.second(refs), [String(unique)]: code };
            expect((await replace(created.body, changes)).body).to.deep.include(changes);

            expect((await admin.delete(recordPath(created.body))).status, code).to.equal(204);
            expectRefused(await getByCode(code), 404, 'not_found');
          }

          expect(await list()).to.deep.equal(others);
        });

        it(`a ${name} code that no record can have is a 404`, async () => {
          for (const code of invalidCodes) {
            expectRefused(await admin.get(`${path}/code/${code}`), 404, 'not_found');
          }
        });
      }

      if (softDelete) {
        it(`a deleted ${name} record is returned with includeDeleted=true, and its code stays taken`, async () => {
          const record = await create();
          const before = Date.now();
          await admin.delete(recordPath(record));

          expect((await admin.get(path)).body).not.to.deep.include(record);
          const { status, body: marked } = await admin.get(
            `${recordPath(record)}?includeDeleted=true`,
          );
          expect(status).to.equal(200);
          expect(marked).to.deep.equal({ ...record, IsDeleted: true, DeletedAt: marked.DeletedAt });
          expect(marked.DeletedAt).to.match(isoTime);
          expect(Date.parse(marked.DeletedAt)).to.be.within(before - 1_000, Date.now() + 1_000);
          expect((await admin.get(`${path}?includeDeleted=true`)).body).to.deep.include(marked);

          expectRefused(
            await admin.get(`${recordPath(record)}?includeDeleted=false`),
            404,
            'not_found',
          );
          for (const query of [
            'includeDeleted=yes',
            'includeDeleted=',
            'includeDeleted=true&includeDeleted=true',
          ]) {
            expectRefused(await admin.get(`${path}?${query}`), 400, 'validation_failed', [
              'includeDeleted',
            ]);
          }

          const again = { ...example.second(refs), [String(unique)]: record[String(unique)] };
          expectRefused(await admin.post(path, again), 400, 'duplicate');
          expectRefused(await replace(record, again), ...missingProblem);

          const unchanged = await admin.get(`${recordPath(record)}?includeDeleted=true`);
          expect(unchanged.body).to.deep.equal(marked);
        });
      }
    });
  }
});
