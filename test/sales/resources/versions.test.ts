import { expect } from 'chai';
import type { ApiResponse } from '../../support/client.ts';
import { useLogin, useWorld } from '../../support/world.ts';
import { createReferences, examples } from './examples.ts';
import { expectRefused } from './expect.ts';

type Body = Record<string, unknown>;

/** A record, and the tag and the body with which it is changed. */
interface Kept {
  path: string;
  tag: string;
  body: Body;
}

const tagOf = ({ headers }: ApiResponse): string => headers.get('etag') ?? '';

describe('the version of a record', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  const globex = useLogin(world, 'globex');

  /** Creates a record of each resource, which refers to others where it can. */
  async function createEach(): Promise<Map<string, Kept>> {
    const refs = await createReferences(admin);
    const records = new Map<string, Kept>();

    for (const [name, { path, key, first }] of Object.entries(examples)) {
      const body = first(refs);
      const created = await admin.post(path, body);
      expect(created.status, name).to.equal(201);

      const { [key]: id } = created.body;
      const recordPath = key === 'Id' ? `${path}/${id}` : `${path}/code/${id}`;
      records.set(name, { path: recordPath, tag: tagOf(await admin.get(recordPath)), body });
    }
    return records;
  }

  /** Replaces each record of a resource but one by itself with another name or title. */
  async function renameAll(name: string, except = ''): Promise<void> {
    const { path, key } = examples[name] ?? { path: '', key: '' };
    const text = ['Title', 'CountryName', 'Name', 'Value'];

    for (const record of (await admin.get(path)).body as Body[]) {
      const recordPath = key === 'Id' ? `${path}/${record.Id}` : `${path}/code/${record[key]}`;
      if (recordPath === except) continue;

      const field = text.find(each => each in record) ?? '';
      const renamed = { ...record, [field]: `${record[field]}*` };
      const changed = await admin.put(key === 'Id' ? recordPath : path, renamed);
      expect(changed.status, `${recordPath} ${JSON.stringify(changed.body)}`).to.equal(200);
    }
  }

  for (const name of Object.keys(examples)) {
    it(`a change of any other record makes no If-Match of ${name} fail, and a change of the record does`, async () => {
      const { path, tag, body } = (await createEach()).get(name) as Kept;
      const { key, path: collection, partial } = examples[name] ?? { key: 'Id', path: '' };
      const put = (condition: string) =>
        admin.put(key === 'Id' ? path : collection, body, { 'If-Match': condition });

      for (const other of Object.keys(examples)) await renameAll(other, path);
      const changed = await put(tag);
      await admin.put(key === 'Id' ? path : collection, {
        ...body,
        ...(partial ? { Title: 'Changed' } : examples[name]?.nth(1)),
        ...(name === 'Entity' ? { Name: 'Changed' } : {}),
        [key]: body[key],
      });

      expect(changed.status, JSON.stringify(changed.body)).to.equal(200);
      expectRefused(await put(tag), 412, 'precondition_failed');
    });
  }

  it('a new title of a status changes the ETag of its entities for readers, in a list and alone', async () => {
    const status = (await admin.post('/api/v1/EntityStatus', { Title: 'Before' })).body;
    const entity = { Name: 'Titled', EntityType: 'customer', StatusId: status.Id };
    const { body } = await admin.post('/api/v1/Entities', entity);
    const path = `/api/v1/Entities/${body.Id}`;
    const before = await admin.get(path);
    const Title = 'After, "StatusTitle":"x"} \\';

    await admin.patch(`/api/v1/EntityStatus/${status.Id}`, { Title });

    const after = await admin.get(path, { 'If-None-Match': tagOf(before) });
    expect(after.status).to.equal(200);
    expect(after.body.StatusTitle).to.equal(Title);
    const listed = await admin.get(`/api/v1/Entities?filter[Id]=${body.Id}&include=etag`);
    expect(listed.body[0].ETag).to.equal(tagOf(after));
    const changed = await admin.patch(path, { Name: 'Kept' }, { 'If-Match': tagOf(before) });
    expect(changed.status).to.equal(200);
    expectRefused(
      await admin.delete(path, { 'If-Match': tagOf(before) }),
      412,
      'precondition_failed',
    );
  });

  it('a new name of a role makes no If-Match of its users fail, and another role does', async () => {
    const role = (await admin.post('/api/v1/Roles', { Name: 'Buyer', Permissions: [] })).body;
    const person = { FirstName: 'Nora', LastName: 'Newman', Role: 'Buyer', Scope: 'All' };
    const invited = await admin.post('/api/v1/Users', { ...person, Email: 'nora@versions.test' });
    const path = `/api/v1/Users/${invited.body.Id}`;
    const tag = tagOf(await admin.get(path));

    await admin.put(`/api/v1/Roles/${role.Id}`, { Name: 'Purchaser', Permissions: [] });
    const renamed = { ...person, Role: 'Purchaser' };
    const kept = await admin.put(path, renamed, { 'If-Match': tag });
    const moved = await admin.put(path, { ...person, Role: 'Member' }, { 'If-Match': tag });

    expect(kept.status, JSON.stringify(kept.body)).to.equal(200);
    expect(kept.body.RoleId).to.equal(role.Id);
    expect(moved.status).to.equal(200);
    expectRefused(await admin.put(path, renamed, { 'If-Match': tag }), 412, 'precondition_failed');
  });

  it('a tag of one tenant is none of the same record of another one, whose title differs', async () => {
    const entity = { Name: 'Twin', EntityType: 'customer' };
    const own = await admin.post('/api/v1/Entities', entity);
    const other = await globex.post('/api/v1/Entities', { ...entity, Name: 'Other' });

    const path = `/api/v1/Entities/${other.body.Id}`;
    const refused = await globex.patch(path, { Name: 'Mine' }, { 'If-Match': tagOf(own) });

    expectRefused(refused, 412, 'precondition_failed');
  });
});
