import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import ts from 'typescript';
import { withBuiltClient } from '../clients/built-client.ts';
import { startProgram } from '../support/command-line.ts';
import { compile } from '../support/compile.ts';
import { useLogin, useWorld } from '../support/world.ts';
import { readAdminPage } from './admin-page.ts';

/** The part of react-admin that the provider uses. A drill runs the page with all of it. */
const types = `
export type Identifier = string | number;
export interface RaRecord { id: Identifier; [field: string]: any }
export class HttpError extends Error {
  constructor(message: string, status: number, body: object);
  readonly status: number;
  readonly body: any;
}
interface Page { pagination?: { page: number; perPage: number }; sort?: { field: string; order: string };
  filter?: any; signal?: AbortSignal }
interface List { data: RaRecord[]; total?: number; pageInfo?: { hasNextPage?: boolean } }
type One = Promise<{ data: RaRecord }>;
export interface DataProvider {
  getList(resource: string, params: Page): Promise<List>;
  getOne(resource: string, params: { id: Identifier }): One;
  getMany(resource: string, params: { ids: Identifier[] }): Promise<{ data: RaRecord[] }>;
  getManyReference(resource: string, params: Page & { target: string; id: Identifier }): Promise<List>;
  create(resource: string, params: { data: object }): One;
  update(resource: string, params: { id: Identifier; data: object; previousData?: any }): One;
  delete(resource: string, params: { id: Identifier; previousData?: any }): One;
  deleteMany(resource: string, params: { ids: Identifier[] }): Promise<{ data: Identifier[] }>;
}
`;
const code = `
export class HttpError extends Error {
  constructor(message, status, body) {
    super(message);
    Object.assign(this, { status, body });
  }
}
`;

/** A program that calls the provider as react-admin does, and prints what it has found. */
const program = `
import { dataProvider } from './provider.js';
import { authProvider } from './session.js';

const { EMAIL = '', PASSWORD = '' } = process.env;
const failed = (error: any) => ({ message: error.message, status: error.status, errors: error.body?.errors });
const namesOf = ({ data }: { data: any[] }) => data.map(({ Name }) => Name);
const found: Record<string, unknown> = {};

found.stranger = await authProvider.checkAuth().catch(failed);
await authProvider.login({ username: EMAIL, password: PASSWORD });
await authProvider.checkAuth();

const customer = { EntityType: 'customer' };
const made = [];
for (const Name of ['one', 'two', 'three']) {
  made.push((await dataProvider.create('Entities', { data: { ...customer, Name } })).data);
}
const [one, two, three] = made as [any, any, any];
const sort = { field: 'Name', order: 'DESC' };
const pagination = { page: 2, perPage: 2 };
const second = await dataProvider.getList('Entities', { pagination, sort, filter: {} });
found.secondPage = [...namesOf(second), second.total];
const filter = { q: 't', Name: { prefix: 'th' } };
found.filtered = namesOf(await dataProvider.getList('Entities', { sort, filter }));
found.many = namesOf(await dataProvider.getMany('Entities', { ids: [one.id, two.id] })).sort();
const reference = { target: 'StatusId', id: one.StatusId, sort, filter: {} };
found.referring = (await dataProvider.getManyReference('Entities', reference)).total;

found.invalid = await dataProvider.create('Entities', { data: customer }).catch(failed);
const { id } = one;
const { data: read } = await dataProvider.getOne('Entities', { id });
const change = (Name: string) =>
  dataProvider.update('Entities', { id, data: { ...read, Name }, previousData: read });
const { data: changed } = await change('changed');
found.changed = changed.Name;
found.late = await change('lost').catch(failed);
found.lateDelete = await dataProvider.delete('Entities', { id, previousData: read }).catch(failed);
await dataProvider.delete('Entities', { id, previousData: changed });
await dataProvider.deleteMany('Entities', { ids: [two.id, three.id] });
found.rest = (await dataProvider.getList('Entities', { sort, filter: {} })).total;

await dataProvider.create('Countries', { data: { CountryCode: 'ADM', CountryName: 'Admin' } });
const byId = { field: 'id', order: 'ASC' };
const [country] = (await dataProvider.getList('Countries', { sort: byId, filter: {} })).data as [any];
const data = { ...country, CountryName: 'Changed' };
await dataProvider.update('Countries', { id: country.id, data, previousData: country });
found.country = (await dataProvider.getOne('Countries', { id: 'ADM' })).data.CountryName;

await authProvider.logout();
found.loggedOut = await authProvider.checkAuth().catch(failed);
console.log(JSON.stringify(found));
`;

describe('the data provider of an admin page', () => {
  const world = useWorld();
  const globex = useLogin(world, 'globex');

  it('has at most 60 lines, compiles against the types of the client, and answers the calls of react-admin', async () => {
    await globex.post('/api/v1/Entities', { Name: 'of globex', EntityType: 'customer' });
    const { 'session.ts': session = '', 'provider.ts': provider = '' } = await readAdminPage();
    expect(provider.trim().split('\n').length).to.be.within(20, 60);

    const found = await withBuiltClient(async folder => {
      const reactAdmin = join(folder, 'node_modules', 'react-admin');
      await mkdir(reactAdmin);
      const manifest = '{ "type": "module", "main": "index.js", "types": "index.d.ts" }';
      await writeFile(join(reactAdmin, 'package.json'), manifest);
      await writeFile(join(reactAdmin, 'index.d.ts'), types);
      await writeFile(join(reactAdmin, 'index.js'), code);
      return run(folder, session, provider);
    });

    const changed = { message: 'The record has changed', status: 412, errors: {} };
    expect(found.stranger).to.deep.equal({ message: 'Log in, please.' });
    expect(found.secondPage).to.deep.equal(['one', 3]);
    expect(found.filtered).to.deep.equal(['three']);
    expect(found.many).to.deep.equal(['one', 'two']);
    expect(found.referring).to.equal(3);
    expect(found.invalid).to.deep.equal({
      message: 'Some fields are not valid',
      status: 400,
      errors: { Name: 'is required' },
    });
    expect(found.changed).to.equal('changed');
    expect(found.late).to.deep.equal(changed);
    expect(found.lateDelete).to.deep.equal(changed);
    expect(found.rest).to.equal(0);
    expect(found.country).to.equal('Changed');
    expect(found.loggedOut).to.deep.equal({ message: 'Log in, please.' });
  });

  /** Runs the program in a folder that has the client. */
  async function run(
    folder: string,
    session: string,
    provider: string,
  ): Promise<Record<string, unknown>> {
    const values = `const { SERVICE = '', TENANT = '' } = process.env;
      const items = new Map<string, string>();
      const localStorage = {
        getItem: (name: string) => items.get(name) ?? null,
        setItem: (name: string, item: string) => void items.set(name, item),
        removeItem: (name: string) => void items.delete(name),
      };\n`;
    await writeFile(join(folder, 'session.ts'), session.replace('\n\n', `\n\n${values}`));
    await writeFile(join(folder, 'provider.ts'), provider);
    await writeFile(join(folder, 'program.ts'), program);
    compile([join(folder, 'program.ts')], {
      strict: true,
      module: ts.ModuleKind.NodeNext,
      target: ts.ScriptTarget.ES2022,
      types: ['node'],
      outDir: folder,
    });

    const { ended } = startProgram(process.execPath, [join(folder, 'program.js')], {
      SERVICE: world.url,
      TENANT: world.acme.guid,
      EMAIL: world.acme.admin.email,
      PASSWORD: world.acme.admin.password,
    });
    const { code, stdout, stderr } = await ended;
    expect(stderr).to.equal('');
    expect(code).to.equal(0);
    return JSON.parse(stdout);
  }
});
