import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { problems } from '../../src/lib/problems.ts';
import { curlSample, sampleValues } from '../../src/service/pages/code-samples.ts';
import {
  type EndpointGroup,
  endpointGroups,
  type Schema,
} from '../../src/service/pages/reference.ts';
import { groupPage } from '../../src/service/pages/reference-page.ts';
import { document } from '../support/contract.ts';
import { useWorld } from '../support/world.ts';

const groups = endpointGroups(document);
const base = 'http://backoffice.test/';
const endpoints = groups.flatMap(group =>
  group.endpoints.map(endpoint => ({ group, endpoint, values: sampleValues(group, base) })),
);

describe('reference', () => {
  it('every property of every schema, and every parameter, has a description of its own', () => {
    const missing: string[] = [];
    const visit = (value: unknown, path: string): void => {
      if (typeof value !== 'object' || value === null) return;
      const { properties, parameters } = value as { properties?: unknown; parameters?: unknown };

      // The properties of a narrowed problem, of a filter and of an example have their
      // descriptions elsewhere.
      if (typeof properties === 'object' && !/\/(allOf|parameters|example)\//.test(path)) {
        for (const [name, schema] of Object.entries(properties as Record<string, Schema>)) {
          if (!/^.{10}.*\.$/.test(schema.description ?? '')) missing.push(`${path}/${name}`);
        }
      }

      if (Array.isArray(parameters)) {
        for (const { name, description = '' } of parameters) {
          if (!/^.{10}.*\.$/.test(description)) missing.push(`${path}: ${name}`);
        }
      }

      for (const [key, child] of Object.entries(value)) visit(child, `${path}/${key}`);
    };

    visit(document, '');
    expect(missing).to.deep.equal([]);
  });

  it('each page has its endpoints with anchor, fields, both examples, response and links to the errors', () => {
    for (const { group, endpoint } of endpoints) {
      const [, section = ''] = pageOf(group).split(`<section class="endpoint" id="${endpoint.id}"`);
      const text = section.split('</section>')[0] ?? '';

      expect(text, endpoint.id).to.include(`>${endpoint.summary.replaceAll("'", '&#39;')}</a>`);
      expect(text).to.include(`>${endpoint.method}</span>`).and.include(`>${endpoint.path}</code>`);

      const fields = [endpoint.body, endpoint.response.body].flatMap(body =>
        Object.keys(body?.schema.properties ?? {}),
      );
      // The operators of a filter stand in its row.
      const parameters = endpoint.parameters.map(({ name }) => name.replace(/(?<=\])\[\w+\]$/, ''));
      const names = [...fields, ...parameters];
      for (const name of names) expect(text, endpoint.id).to.include(`<code>${name}</code>`);

      expect(text)
        .to.match(/aria-label="curl of /)
        .and.match(/aria-label="TypeScript of /);
      if (endpoint.response.body) expect(text).to.match(/aria-label="Response 20\d of /);

      const linked = [...text.matchAll(/href="\/docs\/errors#(\w+)"/g)].map(([, code]) => code);
      expect(linked).to.include.members([
        'rate_limited',
        'internal_error',
        'unavailable',
        'overloaded',
      ]);
      for (const code of linked) expect(problems).to.have.property(code ?? '');
    }
  });

  it('each endpoint lists the codes of the errors that it can return, and not every code of their statuses', () => {
    const codesOf = (id: string) =>
      endpoints
        .find(({ endpoint }) => endpoint.id === id)
        ?.endpoint.errors.flatMap(({ codes }) => codes) ?? [];

    expect(codesOf('postCurrency')).to.include.members([
      'duplicate',
      'limit_reached',
      'malformed_json',
    ]);
    expect(codesOf('postCurrency')).to.not.include('unknown_record').and.not.include('in_use');
    expect(codesOf('putCountries')).to.include('unknown_record').and.not.include('not_found');
    expect(codesOf('putCountries')).to.not.include('duplicate');
    expect(codesOf('putCurrencyById')).to.include('duplicate');
    for (const id of ['postImports', 'deleteAuthSessionsById']) {
      expect(codesOf(id)).not.to.include('not_found');
    }
    expect(codesOf('deleteTaxCodesById')).to.include('in_use').and.not.include('duplicate');

    const ofChanges = ['duplicate', 'in_use', 'limit_reached', 'malformed_json', 'forbidden'];
    for (const id of ['getCurrencyById', 'getCountries', 'getAuthMe']) {
      expect(codesOf(id).filter(code => ofChanges.includes(code))).to.deep.equal([]);
    }

    expect(codesOf('postAuthLogin'))
      .to.include('invalid_credentials')
      .and.not.include('invalid_token');
    expect(
      codesOf('postAuthConfirm').filter(
        code => problems[code as keyof typeof problems].status === 401,
      ),
    ).to.deep.equal([]);
  });
});

describe('examples for curl', () => {
  const world = useWorld();
  before(async function () {
    if (!(await promisify(execFile)('curl', ['--version']).catch(() => undefined))) {
      return this.skip();
    }
  });

  it('a client that runs the examples logs in, then creates, reads, replaces and deletes a record', async () => {
    const { admin, guid } = world.acme;

    const run = async (
      id: string,
      change: (sample: string) => string,
      environment: Record<string, string>,
    ) => {
      const found = endpoints.find(({ endpoint }) => endpoint.id === id);
      if (!found) throw new Error(`no endpoint has the id ${id}`);

      const sample = curlSample(found.endpoint, { ...found.values, base: world.url });
      const command = `${change(sample)} -s -w '\n%{http_code}'`;
      const { stdout } = await promisify(execFile)('sh', ['-c', command], {
        env: { ...process.env, ...environment },
      });

      const [body = '', status] = stdout.split(/\n(?=\d{3}$)/);
      return { status: Number(status), body: body === '' ? undefined : JSON.parse(body) };
    };

    const login = await run(
      'postAuthLogin',
      sample =>
        sample
          .replace('admin@demo.test', admin.email)
          .replace(/"the password .*"/, `"${admin.password}"`),
      { TENANT: guid },
    );
    expect(login.status).to.equal(200);

    const asAdmin = { TOKEN: login.body.accessToken };
    const created = await run('postCurrency', sample => sample, asAdmin);
    expect(created.status).to.equal(201);
    expect(created.body.Symbol).to.equal('₿');

    const withId = (sample: string) =>
      sample.replace(/\/Currency\/\d/, `/Currency/${created.body.Id}`);
    expect((await run('getCurrency', sample => sample, asAdmin)).body).to.deep.equal([
      created.body,
    ]);
    expect((await run('putCurrencyById', withId, asAdmin)).status).to.equal(200);
    expect((await run('deleteCurrencyById', withId, asAdmin)).status).to.equal(204);
    expect((await run('getCurrencyById', withId, asAdmin)).body.code).to.equal('not_found');
  });
});

const rendered = new Map<EndpointGroup, string>();

function pageOf(group: EndpointGroup): string {
  const page = rendered.get(group) ?? groupPage(group.name, groups, { base, hasHandbook: true });
  rendered.set(group, page);
  return page;
}
