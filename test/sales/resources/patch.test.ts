import { expect } from 'chai';
import type { ApiResponse } from '../../support/client.ts';
import { useLogin, useWorld } from '../../support/world.ts';
import { createReferences, type Example, examples } from './examples.ts';
import { auditOf, expectRefused, newestAudit, withField } from './expect.ts';
import type { References } from './field-values.ts';

type Body = Record<string, unknown>;
const tagOf = ({ headers }: ApiResponse): string => headers.get('etag') ?? '';

describe('PATCH', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  const globex = useLogin(world, 'globex');
  let refs: References;

  before(async () => {
    refs = await createReferences(admin);
  });

  for (const [name, example] of Object.entries(examples).filter(
    ([, { takesPatch }]) => takesPatch,
  )) {
    describe(name, () => {
      const { path, key, defaults, fields, missingProblem } = example;
      const pathOf = (record: Body): string => `${path}/${record.Id}`;
      const changeable = Object.keys(fields).filter(field => field !== key);
      const create = async (): Promise<ApiResponse> => {
        const created = await admin.post(path, example.first(refs));
        expect(created.status).to.equal(201);
        return created;
      };

      it(`a PATCH of ${name} changes each field alone, with one audit entry, and returns the record and its ETag`, async () => {
        const { body: record } = await create();
        const expected: Body = { ...record };

        for (const field of changeable) {
          const value = example.second(refs)[field];
          expected[field] = value;

          const changed = await admin.patch(pathOf(record), { [field]: value });
          expect(changed.status, field).to.equal(200);
          expect(changed.headers.get('cache-control'), field).to.equal('no-store');
          for (const each of Object.values(example.computed ?? {})) {
            expected[each] = changed.body[each];
          }
          expect(changed.body, field).to.deep.equal(expected);

          const read = await admin.get(pathOf(record));
          expect(read.body).to.deep.equal(expected);
          expect(tagOf(read)).to.equal(tagOf(changed));
        }

        const entries = await auditOf(admin, name, record[key]);
        const changes = changeable.filter(
          field => JSON.stringify(expected[field]) !== JSON.stringify(record[field]),
        );
        expect(entries.map(({ Action }) => Action)).to.deep.equal([
          'create',
          ...changes.map(() => 'update'),
        ]);
        expect(entries.at(-1)?.UserGuid).to.be.a('string');
      });

      it(`a PATCH of ${name} without a change returns the record and leaves no audit entry`, async () => {
        const { body: record, ...created } = await create();
        const audited = await newestAudit(admin);

        for (const patch of [
          {},
          undefined,
          { [changeable[0] ?? '']: record[changeable[0] ?? ''] },
          { Id: 5, Other: 1 },
        ]) {
          const unchanged = await admin.patch(pathOf(record), patch);
          expect(unchanged.status).to.equal(200);
          expect(unchanged.body).to.deep.equal(record);
          expect(tagOf(unchanged)).to.equal(created.headers.get('etag'));
        }

        expect(await newestAudit(admin)).to.equal(audited);
      });

      it(`null in a PATCH of ${name} resets an optional field to its default, and is refused for a required one`, async () => {
        const { body: record } = await create();
        const audited = await newestAudit(admin);

        for (const field of changeable.filter(each => fields[each]?.required)) {
          expectRefused(
            await admin.patch(pathOf(record), { [field]: null }),
            400,
            'validation_failed',
            [field],
          );
        }
        expect(await newestAudit(admin)).to.equal(audited);

        for (const [field, value] of Object.entries(defaults)) {
          const reset = await admin.patch(pathOf(record), { [field]: null });
          expect(reset.status, field).to.equal(200);
          expect(reset.body[field], field).to.deep.equal(value);
        }
      });

      it(`a PATCH of ${name} accepts and refuses the values that POST does, and stores nothing of a refused one`, async () => {
        const { body: record } = await create();

        for (const field of changeable) {
          for (const [json, stored] of fields[field]?.good(refs) ?? []) {
            if (json === 'null' && stored !== null) continue;

            const changed = await admin.patch(pathOf(record), withField({}, field, json));
            expect(changed.status, json).to.equal(200);
            expect(changed.body[field], json).to.deep.equal(stored);
          }

          const before = (await admin.get(pathOf(record))).body;
          for (const json of (fields[field]?.bad ?? []).filter(each => each !== 'null')) {
            expectRefused(
              await admin.patch(pathOf(record), withField({}, field, json)),
              400,
              'validation_failed',
              [field],
            );
          }

          expect((await admin.get(pathOf(record))).body).to.deep.equal(before);
          await admin.patch(pathOf(record), example.first(refs));
        }
      });

      it(`a PATCH of ${name} changes the record that If-Match names, and no later version of it`, async () => {
        const created = await create();
        const [field = ''] = changeable;
        const patch = { [field]: example.second(refs)[field] };
        const first = { 'If-Match': tagOf(created) };

        expect((await admin.patch(pathOf(created.body), patch, first)).status).to.equal(200);
        expectRefused(
          await admin.patch(pathOf(created.body), {}, first),
          412,
          'precondition_failed',
        );
      });

      it(`a PATCH of a ${name} record that is missing, or of another tenant, gets the problem of PUT`, async () => {
        const { body: record } = await create();
        const patch = { [changeable[0] ?? '']: example.second(refs)[changeable[0] ?? ''] };
        expectRefused(await globex.patch(pathOf(record), patch), ...missingProblem);
        expectRefused(await admin.patch(pathOf({ Id: 999_999 }), patch), ...missingProblem);
        expectRefused(await admin.patch(`${path}/%00`, patch), ...missingProblem);
        expect((await admin.get(pathOf(record))).body).to.deep.equal(record);
      });
    });
  }

  for (const [name, example] of Object.entries(examples).filter(
    ([, { takesPatch }]) => !takesPatch,
  )) {
    it(`a PATCH of ${name} is refused with 405 and the methods of its path, and changes nothing`, async () => {
      const created = await admin.post(example.path, example.first(refs));
      expect(created.status).to.equal(201);
      const path = String(created.headers.get('location'));

      const refused = await admin.patch(path, example.second(refs));

      expectRefused(refused, 405, 'method_not_allowed');
      const methods =
        example.key === 'Id' ? ['GET', 'HEAD', 'PUT', 'DELETE'] : ['GET', 'HEAD', 'DELETE'];
      expect(refused.headers.get('allow')?.split(', ')).to.have.members(methods);
      expect((await admin.get(path)).body).to.deep.equal(created.body);
    });
  }

  it('a PATCH that breaks a rule between a sent and a stored field is refused', async () => {
    const { body } = await admin.post('/api/v1/Promotions', {
      ...(examples.Promotion as Example).first(refs),
      StartsAt: '2026-05-01T00:00:00.000Z',
      EndsAt: '2026-06-01T00:00:00.000Z',
    });
    const patch = (sent: Body) => admin.patch(`/api/v1/Promotions/${body.Id}`, sent);

    expectRefused(await patch({ EndsAt: '2026-04-30T00:00:00Z' }), 400, 'validation_failed', [
      'EndsAt',
    ]);
    expectRefused(await patch({ StartsAt: '2026-06-01T00:00:00Z' }), 400, 'validation_failed', [
      'EndsAt',
    ]);
    expectRefused(await patch({ DiscountValue: 101 }), 400, 'validation_failed', ['DiscountValue']);
    expectRefused(
      await patch({ DiscountType: 'Amount', CurrencyId: null }),
      400,
      'validation_failed',
      ['CurrencyId'],
    );
  });

  it('a PATCH is a JSON merge patch or JSON; any other body is refused with 415 and Accept-Patch', async () => {
    const { body } = await admin.post('/api/v1/EntityStatus', { Title: 'Media types' });
    const send = (type: string, patch: unknown = { Weighting: 5 }) =>
      admin.patch(`/api/v1/EntityStatus/${body.Id}`, patch, { 'Content-Type': type });

    for (const type of [
      'application/merge-patch+json',
      'application/merge-patch+json; charset=UTF-8',
      'application/json',
    ]) {
      expect((await send(type)).status, type).to.equal(200);
    }

    for (const type of [
      'application/json-patch+json',
      'text/plain',
      'application/merge-patch+json; charset=latin1',
    ]) {
      const refused = await send(type);
      expectRefused(refused, 415, 'unsupported_media_type');
      expect(refused.headers.get('accept-patch')).to.equal('application/merge-patch+json');
    }

    for (const patch of ['[]', 'null', '5', '{', '"text"']) {
      expectRefused(await send('application/merge-patch+json', patch), 400, 'malformed_json');
    }

    const put = await admin.put(
      `/api/v1/EntityStatus/${body.Id}`,
      { Weighting: 6 },
      { 'Content-Type': 'application/merge-patch+json' },
    );
    expectRefused(put, 415, 'unsupported_media_type');
    expect(put.headers.get('accept-patch')).to.equal(null);
  });
});
