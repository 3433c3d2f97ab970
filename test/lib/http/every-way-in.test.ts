import { expect } from 'chai';
import { checkManifest } from '../../../src/operator/lifecycle/manifest.ts';
import { invitation, usersPath } from '../../accounts/people/people-world.ts';
import { useConsole } from '../../operator/console/console-client.ts';
import type { ApiResponse } from '../../support/client.ts';
import { runCommand } from '../../support/run-command.ts';
import { controlSql, useLogin, useWorld } from '../../support/world.ts';

/** The addresses that each of these texts means. */
const addresses: Readonly<Record<string, string>> = {
  'nora@example.com': 'nora@example.com',
  '  NORA@Example.COM\t': 'nora@example.com',
  'nora@bücher.example': 'nora@bücher.example',
  'nora@BÜCHER.example': 'nora@bücher.example',
  'nora@bu\u0308cher.example': 'nora@bücher.example',
  'nora@xn--bcher-kva.example': 'nora@bücher.example',
  'Nora@XN--BCHER-KVA.Example': 'nora@bücher.example',
  'nora@straße.example': 'nora@straße.example',
  'nora@xn--strae-oqa.example': 'nora@straße.example',
  'nora@xn--80ak6aa92e.example': 'nora@аррӏе.example',
  'nora@نامه\u200cای.example': 'nora@نامه\u200cای.example',
  'jose\u0301@example.com': 'josé@example.com',
  'o\u2019hara+x%y@example.com': 'o\u2019hara+x%y@example.com',
  'nora@localhost': 'nora@localhost',
  'KIM@example.com': 'kim@example.com',
  '\u212aim@example.com': '\u212aim@example.com',
};

/** The codes that each of these texts means. */
const codes: Readonly<Record<string, string>> = {
  kgm: 'Kgm',
  KGM: 'Kgm',
  ' kGm\t': 'Kgm',
  'cafe\u0301': 'Caf\u00e9',
  'CAF\u00c9': 'Caf\u00e9',
  'gr\u00f6\u00dfe 1': 'Gr\u00f6\u00dfe 1',
  'GR\u00d6\u00dfE 1': 'Gr\u00f6\u00dfe 1',
  '\u212a2': 'k2',
  'a%_b': 'A%_b',
};

const noAddress = 'must be an e-mail address';
/** Texts that no address can have, with the reason. */
const refusedAddresses: Readonly<Record<string, string>> = {
  nora: noAddress,
  '@': noAddress,
  'nora@': noAddress,
  '@example.com': noAddress,
  'nora@@example.com': noAddress,
  'nora@a@example.com': noAddress,
  'nora@example.com.': noAddress,
  'nora@.example.com': noAddress,
  'nora@example..com': noAddress,
  'nora@example。com': noAddress,
  'nora@example．com': noAddress,
  'nora＠example.com': noAddress,
  'nora@ｅxample.com': noAddress,
  'nora@ﬁrm.example': noAddress,
  'nora@\u212aim.example': noAddress,
  'nora@İzmir.example': noAddress,
  'no\u200bra@example.com': noAddress,
  'nora\u200b@example.com': noAddress,
  'nora@exam\u200bple.com': noAddress,
  'nora@exam\u00adple.com': noAddress,
  'no\u00adra@example.com': noAddress,
  '\u202enora@example.com': noAddress,
  'nora@\u202eexample.com': noAddress,
  'no\u2060ra@example.com': noAddress,
  'no\u3164ra@example.com': noAddress,
  'no\ufe0fra@example.com': noAddress,
  'no\u00a0ra@example.com': noAddress,
  'no ra@example.com': noAddress,
  'Nora <nora@example.com>': noAddress,
  'nora@example.com,eve@example.com': noAddress,
  'nora@example.com;eve@example.com': noAddress,
  'mailto:nora@example.com': noAddress,
  '"nora"@example.com': noAddress,
  'nora@[192.0.2.1]': noAddress,
  'nora@127.1': noAddress,
  'nora@%65xample.com': noAddress,
  'nora@example.com/x': noAddress,
  'nora@example.com?x': noAddress,
  'nora@xn--': noAddress,
  'nora@xn--a': noAddress,
  'nora@xn--0.example': noAddress,
  [`nora@${'a'.repeat(64)}.example`]: noAddress,
  [`${'n'.repeat(250)}@example.com`]: 'must be at most 254 characters long',
  'no\u0007ra@example.com': 'must not contain control characters',
  'nora@exam\u0001ple.com': 'must not contain control characters',
};

/** The times that each of these texts means; undefined for those that are refused. */
const times: Readonly<Record<string, string | undefined>> = {
  '2026-01-31T12:00:00Z': '2026-01-31T12:00:00.000Z',
  '2026-01-31T12:00Z': '2026-01-31T12:00:00.000Z',
  '2026-01-31T13:00:00,000+01': '2026-01-31T12:00:00.000Z',
  '2026-01-31T12:00:00+0000': '2026-01-31T12:00:00.000Z',
  '2026-01-31t12:00:00z': '2026-01-31T12:00:00.000Z',
  '2026-01-31T12:00:00': undefined,
  '2026-01-31T12:00': undefined,
  '2026-02-30T12:00Z': undefined,
  '2026-13-01T12:00Z': undefined,
  '2026-01-31T25:00Z': undefined,
  '31.01.2026': undefined,
  '01/31/2026': undefined,
  '1769860800': undefined,
  'next Tuesday': undefined,
  '20260131T120000Z': undefined,
};

/** Numbers in texts; undefined for those that are refused. */
const numbers: Readonly<Record<string, number | undefined>> = {
  '19.99': 19.99,
  '5': 5,
  '007': 7,
  '20.0000000000000000': 20,
  '99.99999999999999999': undefined,
  '0.10000000000000001': undefined,
  '1e1': undefined,
  '1,5': undefined,
  '+5': undefined,
  '.5': undefined,
  '5.': undefined,
  '0x10': undefined,
  '١': undefined,
  '５': undefined,
  NaN: undefined,
  Infinity: undefined,
  '1 000': undefined,
  '1_000': undefined,
  '5%': undefined,
};

const notIds = [
  '0',
  '-1',
  '01',
  '1.5',
  '1e3',
  '+1',
  '9007199254740993',
  '99999999999999999999',
  '٣',
  '１',
  '1_0',
  'x',
];

/** Names, and the reason why they are refused; undefined for those that are taken. */
const names: Readonly<Record<string, string | undefined>> = {
  Nora: undefined,
  ' Cafe\u0301 ': undefined,
  '👩‍👩‍👧': undefined,
  "O'Hara": undefined,
  ' ': 'must not be empty',
  '\u200b': 'must not be empty',
  '\u00ad\u2060': 'must not be empty',
  '\u3164': 'must not be empty',
  '\u202e': 'must not be empty',
  'a\u0007b': 'must not contain control characters',
  'a\u0085b': 'must not contain control characters',
  'a\u001bb': 'must not contain control characters',
  [`${'n'.repeat(256)}`]: 'must be at most 255 characters long',
};

describe('a value is read in the same way, whichever way it comes in', () => {
  const world = useWorld();
  const admin = useLogin(world, 'acme');
  const opened = useConsole(world);

  before(() =>
    controlSql(world, `update tenants set features = '{selfRegistration}' where id = ?`, [
      world.acme.id,
    ]),
  );

  /** The error of the only field that has one, or undefined. */
  const reasonOf = ({ body }: ApiResponse): string | undefined =>
    (Object.values(body?.errors ?? {}) as string[][])[0]?.[0];
  const anonymous = (path: string, body: object) =>
    world.anonymous.post(`/api/v1/auth/${path}`, body, { 'X-Tenant': world.acme.guid });
  const command = (...args: string[]) => runCommand('scripts/tenant.ts', args, world.environment);
  const importOne = async (
    resource: string,
    header: string,
    cells: string,
  ): Promise<string | undefined> => {
    const { body } = await admin.send(
      'POST',
      `/api/v1/Imports?resource=${resource}&mode=create&dryRun=true`,
      `${header}\n${cells}\n`,
      { 'Content-Type': 'text/csv' },
    );
    return body.Errors[0]?.Reason;
  };
  const quoted = (cell: string) => `"${cell.replaceAll('"', '""')}"`;
  const password = 'three quiet rivers';

  /** Every way in of an address. Each returns why it was refused, or undefined. */
  const waysOfAddresses: Readonly<Record<string, (text: string) => Promise<string | undefined>>> = {
    login: async email => reasonOf(await anonymous('login', { email, password })),
    'new password': async email => reasonOf(await anonymous('reset-password', { email })),
    registration: async email =>
      reasonOf(await anonymous('register', { email, password, firstName: 'N', lastName: 'N' })),
    invitation: async Email =>
      reasonOf(await admin.post(usersPath, invitation({ Email, Role: 'no such role' }))),
    filter: async text =>
      reasonOf(await admin.get(`${usersPath}?filter[Email]=${encodeURIComponent(text)}`)),
    'page of a link': async email => {
      const body = new URLSearchParams({ tenant: world.acme.guid, email });
      const text = await (await fetch(`${world.url}/reset`, { method: 'POST', body })).text();
      return text.includes('This is not an e-mail address') ? 'page' : undefined;
    },
    manifest: async email => {
      try {
        checkManifest({ slug: 'new', name: 'New', admin: { email } }, 'file');
        return undefined;
      } catch (error) {
        return /admin\.email: (.*)$/.exec((error as Error).message)?.[1];
      }
    },
    'command that looks up': async text => {
      const { stderr } = await command('user', 'find', '--', text);
      return /The e-mail address (.*?)\.?\n/.exec(stderr)?.[1];
    },
    'command that adds': async text => {
      const { stderr } = await command('user', 'add', 'acme', '--dry-run', '--', text);
      return /The e-mail address (.*?)\.?\n/.exec(stderr)?.[1];
    },
    console: async text => {
      const page = (await opened.get(`/tenants?q=${encodeURIComponent(text)}`)).text;
      return /An e-mail address (must [^<]*?)\.</.exec(page)?.[1];
    },
  };

  it('an address that no mailbox can have is refused by every way in, with the same reason', async () => {
    for (const [text, reason] of Object.entries(refusedAddresses)) {
      for (const [way, send] of Object.entries(waysOfAddresses)) {
        if (way === 'console' && !text.includes('@')) continue; // there, it is the name of a tenant
        const expected = way === 'page of a link' ? 'page' : reason;
        expect(await send(text), `${JSON.stringify(text)} by ${way}`).to.equal(expected);
      }
    }
  });

  it('each spelling of an address is stored as one, and finds its user by every way in', async () => {
    for (const address of new Set(Object.values(addresses))) {
      const added = await admin.post(usersPath, invitation({ Email: address }));
      expect(added.status, address).to.equal(201);
      expect(added.body.Email, address).to.equal(address);
      await controlSql(world, 'update users set disabled_at = now() where id = ?', [added.body.Id]);
    }

    for (const [text, address] of Object.entries(addresses)) {
      const again = await admin.post(usersPath, invitation({ Email: text }));
      expect(again.body.code, text).to.equal('duplicate');

      const searches = [
        `filter[Email]=${encodeURIComponent(text)}`,
        `q=${encodeURIComponent(text)}`,
      ];
      for (const search of searches) {
        const { body } = await admin.get(`${usersPath}?${search}`);
        expect(
          body.map(({ Email }: { Email: string }) => Email),
          search,
        ).to.deep.equal([address]);
      }

      for (const [way, send] of Object.entries(waysOfAddresses)) {
        if (way === 'invitation' || way === 'registration') continue;
        if (way === 'command that adds') {
          expect((await command('user', 'add', 'acme', '--dry-run', '--', text)).stderr).to.include(
            'already',
          );
        } else {
          expect(await send(text), `${text} by ${way}`).to.equal(undefined);
        }
      }
      const { stdout } = await command('user', 'find', '-o', 'json', '--', text);
      expect(stdout, text).to.include(address);
      const page = (await opened.get(`/tenants?q=${encodeURIComponent(text)}`)).text;
      expect(page, text).to.include('/tenants/acme');
    }
  });

  it('each spelling of a code finds its record by every way in, and makes no second one', async () => {
    const path = '/api/v1/Countries';
    const countries = new Set(Object.values(codes));
    for (const CountryCode of countries) {
      const made = await admin.post(path, { CountryCode, CountryName: 'Somewhere' });
      expect(made.body.CountryCode).to.equal(CountryCode);
      const entity = { Name: CountryCode, EntityType: 'customer', StatusId: 1, CountryCode };
      expect((await admin.post('/api/v1/Entities', entity)).status).to.equal(201);
    }

    for (const [text, code] of Object.entries(codes)) {
      const encoded = encodeURIComponent(text);
      const one = await admin.get(`${path}/code/${encoded}`);
      expect(one.body.CountryCode, `${text} in a path`).to.equal(code);

      for (const [list, query] of [
        [path, `filter[CountryCode]=${encoded}`],
        [path, `filter[CountryCode]=${encoded}&filter[CountryCode]=none`],
        [path, `filter[CountryCode][prefix]=${encodeURIComponent(text.trim())}`],
        [path, `filter[CountryCode][contains]=${encodeURIComponent(text.trim())}`],
        [path, `q=${encoded}`],
        ['/api/v1/Entities', `filter[CountryCode]=${encoded}`],
      ] as const) {
        const { body } = await admin.get(`${list}?${query}`);
        const found = body.map(({ CountryCode }: { CountryCode: string }) => CountryCode);
        expect(found, query).to.deep.equal([code]);
      }

      const again = await admin.post(path, { CountryCode: text, CountryName: 'Somewhere' });
      expect(again.body.code, `${text} in a body`).to.equal('duplicate');
      const file = `CountryCode,CountryName\n"${text}",Somewhere\n`;
      const upsert = await admin.post('/api/v1/Imports?resource=Country&mode=upsert', file, {
        'Content-Type': 'text/csv',
      });
      expect(upsert.body.Unchanged, `${text} in a file`).to.equal(1);
      const entity = { Name: 'Of', EntityType: 'customer', StatusId: 1, CountryCode: text };
      const referring = await admin.post('/api/v1/Entities', entity);
      expect(referring.body.CountryCode, `${text} as a reference`).to.equal(code);
      await admin.delete(`/api/v1/Entities/${referring.body.Id}`);
    }
  });

  it('a part of an address is looked for in the form in which addresses are stored', async () => {
    const Email = 'part@bücher.example';
    await admin.post(usersPath, invitation({ Email }));

    for (const search of [
      'q=part%40b%C3%BCcher',
      'q=part%40xn--bcher-kva.ex',
      'q=PART@XN--BCHER-KVA',
      'filter[Email][prefix]=PART@b',
      'filter[Email][contains]=art@xn--bcher-kva.',
      'filter[Email][contains]=art@bu%CC%88cher.',
    ]) {
      const { body } = await admin.get(`${usersPath}?${search}`);
      expect(
        body.map((user: { Email: string }) => user.Email),
        search,
      ).to.deep.equal([Email]);
    }
  });

  it('a time is taken or refused alike in bodies, files, filters and commands', async () => {
    for (const [text, expected] of Object.entries(times)) {
      const promotion = { PromoCode: 'T', Name: 'T', DiscountType: 'Percentage', DiscountValue: 5 };
      const json = await admin.post('/api/v1/Promotions', { ...promotion, StartsAt: text });
      expect(json.body.StartsAt, `${text} in JSON`).to.equal(expected);
      if (json.status === 201) await admin.delete(`/api/v1/Promotions/${json.body.Id}`);

      const cells = `T,T,Percentage,5,${quoted(text)}`;
      const file = await importOne(
        'Promotion',
        'PromoCode,Name,DiscountType,DiscountValue,StartsAt',
        cells,
      );
      expect(file, `${text} in a file`).to.equal(reasonOf(json));

      const filter = await admin.get(
        `/api/v1/Promotions?filter[StartsAt]=${encodeURIComponent(text)}`,
      );
      expect(reasonOf(filter), `${text} in a filter`).to.equal(reasonOf(json));

      const { code } = await command('logs', 'acme', '--since', text);
      expect(code, `${text} in a command`).to.equal(expected === undefined ? 2 : 0);
    }
  });

  it('a number in a text is taken or refused alike in files and filters', async () => {
    for (const [text, expected] of Object.entries(numbers)) {
      const cells = `T,T,Percentage,${quoted(text)}`;
      const file = await importOne('Promotion', 'PromoCode,Name,DiscountType,DiscountValue', cells);
      const filter = await admin.get(
        `/api/v1/Promotions?filter[DiscountValue]=${encodeURIComponent(text)}`,
      );

      expect(file === undefined, `${text} in a file: ${file}`).to.equal(expected !== undefined);
      expect(reasonOf(filter), `${text} in a filter`).to.equal(file);
    }
  });

  it('a text that is no id is refused by paths, parameters, filters and commands', async () => {
    for (const text of notIds) {
      const encoded = encodeURIComponent(text);
      expect((await admin.get(`${usersPath}/${encoded}`)).status, `${text} in a path`).to.equal(
        404,
      );
      expect(
        (await admin.get(`${usersPath}?after=${encoded}`)).status,
        `${text} as after`,
      ).to.equal(400);

      const { code } = await command(
        'user',
        'add',
        'acme',
        'id@acme.test',
        '--dry-run',
        `--entity=${text}`,
      );
      expect(code, `${text} in a command`).to.equal(2);

      const { status, body } = await admin.get(`${usersPath}?filter[Id]=${encoded}`);
      if (status === 200) expect(body, `${text} in a filter`).to.deep.equal([]);
      else expect(status, `${text} in a filter`).to.equal(400);
    }
  });

  it('a name is refused with the same reason in bodies, files, commands and manifests, and found as it was stored', async () => {
    for (const [text, reason] of Object.entries(names)) {
      const json = await admin.post('/api/v1/OrderStatuses', { Name: text });
      expect(reasonOf(json), `${JSON.stringify(text)} in JSON`).to.equal(reason);

      const file = await importOne('OrderStatus', 'Name,Id', `${quoted(text)},1`);
      expect(file, `${JSON.stringify(text)} in a file`).to.equal(reason);

      const { stderr } = await command(
        'user',
        'add',
        'acme',
        'name@acme.test',
        '--dry-run',
        `--first-name=${text}`,
      );
      expect(
        /The first name (.*?)\.?\n/.exec(stderr)?.[1],
        `${JSON.stringify(text)} in a command`,
      ).to.equal(reason);

      const check = () =>
        checkManifest({ slug: 'new', name: text, admin: { email: 'a@b.test' } }, 'file');
      if (reason === undefined) expect(check().name).to.equal(json.body.Name);
      else expect(check, JSON.stringify(text)).to.throw(`name: ${reason}`);

      const filter = await admin.get(
        `/api/v1/OrderStatuses?filter[Name]=${encodeURIComponent(text)}`,
      );
      if (reason === undefined) {
        expect(filter.body[0]?.Name).to.equal(json.body.Name);
      } else {
        expect(reasonOf(filter) ?? reason, `${JSON.stringify(text)} in a filter`).to.equal(reason);
      }
    }
  });
});
