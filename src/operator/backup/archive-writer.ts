import type { Readable } from 'node:stream';
import { type Server, Tenant } from '../../control/control-entities.ts';
import type { Installation } from '../../installation.ts';
import { withConnection } from '../../postgres/connection.ts';
import { shareConnection } from '../../postgres/shared-connection.ts';
import { listForeignObjects } from '../databases/foreign-objects.ts';
import { headFingerprint, knownObjects } from '../schema/template.ts';
import { type ArchiveSource, archiveDatabase } from './archive/archive-database.ts';
import { countRows } from './archive/archive-documents.ts';
import { controlMacKey, requireArchiveKey } from './archive/archive-keys.ts';
import { readSchemaPages, type SchemaPage } from './archive/schema-pages.ts';
import type { ArchiveOrder, WriteArchive } from './run-backup.ts';

/** What a run reads once for all of its archives. */
interface RunFacts {
  readonly tenantPages: readonly SchemaPage[];
  readonly controlPages: readonly SchemaPage[];
  readonly archiveKey: Buffer;
  readonly controlMacKey: Buffer;
}

/**
 * Returns what makes the archives of a run.
 * @throws {OperatorError} when the master key does not open the key of archives
 */
export async function createArchiveWriter(installation: Installation): Promise<WriteArchive> {
  const { controlUrl, secrets } = installation;
  const [tenantPages, controlPages] = await Promise.all([readSchemaPages('tenant'), readSchemaPages('control')]);
  const facts = await withConnection(controlUrl, async client => {
    const control = shareConnection(client);
    return {
      tenantPages,
      controlPages,
      archiveKey: await requireArchiveKey(control, secrets),
      controlMacKey: controlMacKey(secrets),
    };
  });
  const writer = new ArchiveWriter(installation, facts);

  return (order, store) => writer.write(order, store);
}

class ArchiveWriter {
  readonly #installation: Installation;
  readonly #facts: RunFacts;
  /** The objects that a tenant's database has by its schema, by the id of the server. */
  readonly #known = new Map<number, Promise<Set<string>>>();

  constructor(installation: Installation, facts: RunFacts) {
    this.#installation = installation;
    this.#facts = facts;
  }

  async write<T>({ name, recipients, tenant, server, url }: ArchiveOrder, store: (body: Readable) => Promise<T>) {
    const { tenantPages, controlPages, archiveKey, controlMacKey } = this.#facts;
    const subject = {
      kind: tenant ? ('tenant' as const) : ('control' as const),
      installation: name.installation,
      tenant,
      name: name.name,
      time: name.time.toISOString(),
      recipients: [...recipients],
    };
    const source = tenant
      ? { url, server, pages: tenantPages, listForeign: await this.#foreignOf(tenant.guid) }
      : { url, server, pages: controlPages };

    const { manifest, written } = await archiveDatabase(source, subject, tenant ? archiveKey : controlMacKey, store);
    return { rows: countRows(manifest), written };
  }

  /** Returns what lists the objects that somebody else has made; without it, an archive is made all the same. */
  async #foreignOf(guid: string): Promise<ArchiveSource['listForeign']> {
    const { em } = await this.#installation.control();
    const tenant = await em.fork().findOne(Tenant, { guid }, { populate: ['server'] });
    if (!tenant) return undefined;

    const { server, roleName: role } = tenant;
    const known = await this.#knownOn(server).catch(() => undefined);
    return known && (client => listForeignObjects(client, { server, role }, known));
  }

  #knownOn(server: Server): Promise<Set<string>> {
    const installation = this.#installation;
    const read = async (): Promise<Set<string>> => {
      const adminUrl = installation.servers.adminUrl(server);
      await headFingerprint(installation.control, server, adminUrl); // stores what `knownObjects` reads
      return knownObjects(installation, server);
    };

    const known = this.#known.get(server.id) ?? read();
    this.#known.set(server.id, known);
    return known;
  }
}
