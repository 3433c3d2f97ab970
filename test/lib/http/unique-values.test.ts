import { expect } from 'chai';
import pg from 'pg';
import {
  invitation,
  newAddress,
  rolesPath,
  usersPath,
} from '../../accounts/people/people-world.ts';
import type { ApiResponse } from '../../support/client.ts';
import { eventually } from '../../support/eventually.ts';
import { readLockWaiters } from '../../support/lock-waiters.ts';
import { startMailServer } from '../../support/mail-server.ts';
import { mailsSettled } from '../../support/mails.ts';
import { use } from '../../support/use.ts';
import { controlSql, createWorld, sql, useLogin } from '../../support/world.ts';

/** The codes of records: by the name of the unique index, what makes a record with a code. */
const codes: Readonly<
  Record<string, { path: string; resource: string; field: string; body: object }>
> = {
  countries_country_code_unique: {
    path: '/api/v1/Countries',
    resource: 'Country',
    field: 'CountryCode',
    body: { CountryName: 'Nowhere' },
  },
  currencies_code_unique: {
    path: '/api/v1/Currency',
    resource: 'Currency',
    field: 'Code',
    body: { Name: 'Nothing' },
  },
  units_of_measure_code_unique: {
    path: '/api/v1/UnitsOfMeasure',
    resource: 'UnitOfMeasure',
    field: 'Code',
    body: { Name: 'Nil' },
  },
  tax_codes_code_unique: {
    path: '/api/v1/TaxCodes',
    resource: 'TaxCode',
    field: 'Code',
    body: { Name: 'None', Rate: 1 },
  },
  promotions_promo_code_unique: {
    path: '/api/v1/Promotions',
    resource: 'Promotion',
    field: 'PromoCode',
    body: { Name: 'None', DiscountType: 'Percentage', DiscountValue: 5 },
  },
};

/**
 * The unique values of users and roles, which have tests of their own below, and of providers,
 * whose is in `identity-providers.test`.
 */
const people = [
  'users_tenant_id_email_unique',
  'roles_tenant_id_name_unique',
  'identity_providers_tenant_id_issuer_unique',
];

/** Values that the service or an operator chooses: no request of a client has them. */
const notOfClients = [
  'account_notices_occasion_unique',
  'factors_credential_id_unique',
  'identities_provider_id_subject_unique',
  'identity_providers_guid_unique',
  'identity_providers_tenant_id_id_unique',
  'logins_hour_unique',
  'mail_deliveries_link_unique',
  'program_keys_hash_unique',
  'recovery_codes_hash_unique',
  'retention_policies_tenant_id_unique',
  'roles_tenant_id_id_unique',
  'servers_name_unique',
  'sign_in_rules_tenant_id_unique',
  'signing_keys_active_unique',
  'tenant_databases_current_unique',
  'tenant_databases_name_unique',
  'tenant_fences_id_unique',
  'tenants_database_name_unique',
  'tenants_guid_unique',
  'tenants_slug_unique',
  'users_guid_unique',
  'users_tenant_id_id_unique',
  'webhook_tenants_tenant_id_unique',
];

const rounds = 8;

describe('two writes of one unique value at the same time', () => {
  const mail = use(startMailServer);
  const world = use(() =>
    createWorld({
      SMTP_URL: mail.url,
      RATE_LIMIT_PEOPLE: '1000/15m',
      RATE_LIMIT_ACCOUNT: '1000/15m',
    }),
  );
  const admin = useLogin(world, 'acme');

  before(() =>
    controlSql(world, `update tenants set features = '{selfRegistration}' where id = ?`, [
      world.acme.id,
    ]),
  );

  let codesGiven = 0;

  /** Returns three capital letters, as the code of a currency has them, each time others. */
  const newCode = (): string => {
    const number = codesGiven++;
    return String.fromCharCode(
      ...[1, 26, 676].map(place => 65 + (Math.floor(number / place) % 26)),
    );
  };

  const registered = (email: string): Promise<ApiResponse> =>
    world.anonymous.post(
      '/api/v1/auth/register',
      { email, password: 'three quiet rivers', firstName: 'Nora', lastName: 'Newman' },
      { 'X-Tenant': world.acme.guid },
    );

  /** Expects that the value was taken, and that the answer says at which field. */
  function expectTaken({ status, body }: ApiResponse, field: string): void {
    expect(status, JSON.stringify(body)).to.be.oneOf([400, 409]);
    expect(body.code).to.equal('duplicate');
    expect(body.errors?.[field]).to.deep.equal(['is taken']);
  }

  it('each unique index of both databases is known to this test', async () => {
    const text = `
      select c.relname as name from pg_index i join pg_class c on c.oid = indexrelid
        join pg_namespace n on n.oid = relnamespace
       where indisunique and not indisprimary and nspname = 'public' order by 1`;

    const found = [
      ...(await sql<{ name: string }>(world.acme, text)),
      ...(await controlSql<{ name: string }>(world, text)),
    ];

    const known = [...Object.keys(codes), ...people, ...notOfClients];
    expect(found.map(({ name }) => name)).to.have.members(known);
  });

  for (const [index, { path, resource, field, body }] of Object.entries(codes)) {
    it(`a code is given to one of two requests, or of a request and an import: ${index}`, async () => {
      for (let round = 0; round < rounds; round++) {
        const code = newCode();
        const names = [field, ...Object.keys(body)].join(',');
        const file = `${names}\n${[code, ...Object.values(body)].join(',')}\n`;

        const requests = await Promise.all([
          admin.post(path, { [field]: code, ...body }),
          admin.post(path, { [field]: code, ...body }),
        ]);
        const made = requests.filter(({ status }) => status === 201);
        const refused = requests.filter(({ status }) => status !== 201);
        expect(made, JSON.stringify(requests)).to.have.length(1);
        expectTaken(refused[0] as ApiResponse, field);

        const other = newCode();
        const [request, imported] = await Promise.all([
          admin.post(path, { [field]: other, ...body }),
          admin.post(
            `/api/v1/Imports?resource=${resource}&mode=create`,
            file.replace(code, other),
            { 'Content-Type': 'text/csv' },
          ),
        ]);
        expect(imported.status, JSON.stringify(imported.body)).to.equal(200);
        if (request.status === 201) expect(imported.body.Errors[0].Code).to.equal('taken');
        else expectTaken(request, field);
        expect(imported.body.Applied).to.equal(request.status !== 201);
      }
    });
  }

  it('a name is given to one of two roles, or of two changes of roles', async () => {
    for (let round = 0; round < rounds; round++) {
      const Name = `Role ${newCode()} ${round}`;
      const [first, second] = await Promise.all([
        admin.post(rolesPath, { Name: `${Name} 1`, Permissions: [] }),
        admin.post(rolesPath, { Name: `${Name} 2`, Permissions: [] }),
      ]);

      const answers = await Promise.all([
        admin.post(rolesPath, { Name, Permissions: [] }),
        admin.put(`${rolesPath}/${first.body.Id}`, { Name, Permissions: [] }),
        admin.put(`${rolesPath}/${second.body.Id}`, { Name, Permissions: [] }),
      ]);

      expect(answers.filter(({ status }) => status < 300)).to.have.length(1);
      for (const refused of answers.filter(({ status }) => status >= 300)) {
        expectTaken(refused, 'Name');
      }
    }
  });

  it('of corrections, invitations and a registration of one address, each ends, and one user has the address', async () => {
    for (let round = 0; round < rounds; round++) {
      const [first, second] = [invitation(), invitation()];
      const [one, two] = [await admin.post(usersPath, first), await admin.post(usersPath, second)];
      const Email = newAddress();

      const [registration, ...answers] = await Promise.all([
        registered(Email),
        admin.put(`${usersPath}/${one.body.Id}`, { ...first, Email }),
        admin.put(`${usersPath}/${two.body.Id}`, { ...second, Email }),
      ]);

      expect(registration.status).to.equal(202);
      for (const each of answers.filter(({ status }) => status !== 200)) expectTaken(each, 'Email');
      await mailsSettled(world);
      const { body } = await admin.get(`${usersPath}?filter[Email]=${Email}`);
      expect(body).to.have.length(1);
      const isCorrected = answers.filter(({ status }) => status === 200).length;
      expect(isCorrected).to.be.at.most(1);
    }
  });

  for (const isKept of [true, false]) {
    it(`a correction waits for a user who is being added with the address, and is ${isKept ? 'refused' : 'made'} when that is ${isKept ? 'stored' : 'rolled back'}`, async () => {
      const sent = invitation();
      const { body: invited } = await admin.post(usersPath, sent);
      const Email = newAddress();
      const worker = new pg.Client(world.environment.DATABASE_URL);
      await worker.connect();

      try {
        await worker.query('begin');
        await worker.query(
          `insert into users (tenant_id, email, password_hash, first_name, last_name, role_id, scope)
           select tenant_id, $2, password_hash, first_name, last_name, role_id, scope from users where id = $1`,
          [invited.Id, Email],
        );
        const correcting = admin.put(`${usersPath}/${invited.Id}`, { ...sent, Email });
        await eventually(async () => (await readLockWaiters(worker)).length > 0);
        await worker.query(isKept ? 'commit' : 'rollback');

        const answer = await correcting;
        if (isKept) expectTaken(answer, 'Email');
        else expect(answer.body.Email).to.equal(Email);
      } finally {
        await worker.end();
      }
    });
  }
});
