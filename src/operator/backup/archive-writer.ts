import type { Readable } from 'node:stream';
import { Server } from '../../control/control-entities.ts';
import type { Installation } from '../../control/installation.ts';
import { withConnection } from '../../lib/postgres/connection.ts';
import { shareConnection } from '../../lib/postgres/shared-connection.ts';
import { listForeignObjects } from '../databases/copy/foreign-objects.ts';
import { headFingerprint, type KnownObjects, knownObjects } from '../schema/template.ts';
import { type ArchiveSource, archiveDatabase } from './archive/archive-database.ts';
import { countRows, foreignLeftOut, givenNumbers } from './archive/archive-documents.ts';
import { controlMacKey, requireArchiveKey } from './archive/archive-keys.ts';
import { readSchemaPages, type SchemaPage } from './archive/schema-pages.ts';
import type { ArchiveOrder, WriteArchive } from './run-backup.ts';

/** Facts that a run reads once for all of its archives. */
interface RunFacts {
  readonly tenantPages: readonly SchemaPage[];
  readonly controlPages: readonly SchemaPage[];
  readonly archiveKey: Buffer;
  readonly controlMacKey: Buffer;
}

/**
 * Returns the writer of the archives of a run.
 * @throws {OperatorError} when the master key does not open the key of archives
 */
export async function createArchiveWriter(installation: Installation): Promise<WriteArchive> {
  const { controlUrl, secrets } = installation;
  const [tenantPages, controlPages] = await Promise.all([
    readSchemaPages('tenant'),
    readSchemaPages('control'),
  ]);
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
  readonly #servers = new Map<string, Promise<KnownServer>>();

  constructor(installation: Installation, facts: RunFacts) {
    this.#installation = installation;
    this.#facts = facts;
  }

  async write<T>(order: ArchiveOrder, store: (body: Readable) => Promise<T>) {
    const { tenantPages, controlPages, archiveKey, controlMacKey } = this.#facts;
    const { name, recipients, tenant, server, url } = order;
    const subject = {
      kind: tenant ? ('tenant' as const) : ('control' as const),
      installation: name.installation,
      tenant,
      name: name.name,
      time: name.time.toISOString(),
      recipients: [...recipients],
    };
    const source = tenant
      ? { url, server, pages: tenantPages, listForeign: await this.#foreignOf(order) }
      : { url, server, pages: controlPages };

    const { manifest, unpackedBytes, written } = await archiveDatabase(
      source,
      subject,
      tenant ? archiveKey : controlMacKey,
      store,
    );
    return {
      rows: countRows(manifest),
      leftOut: foreignLeftOut(manifest),
      numbers: givenNumbers(manifest),
      schemaVersion: manifest.schemaVersion,
      unpackedBytes,
      written,
    };
  }

  /**
   * Returns a function that lists the objects of others; undefined if they cannot be known, and
   * then the archive is made without the list.
   */
  async #foreignOf({ role, server: name }: ArchiveOrder): Promise<ArchiveSource['listForeign']> {
    const found = await this.#serverOf(name).catch(() => undefined);
    if (!found || role === null) return undefined;

    const { server, known } = found;
    return client => listForeignObjects(client, { server, role }, known);
  }

  #serverOf(name: string): Promise<KnownServer> {
    const installation = this.#installation;
    const read = async (): Promise<KnownServer> => {
      const { em } = await installation.control();
      const server = await em.fork().findOneOrFail(Server, { name });
      // This stores the fingerprint that `knownObjects` reads.
      await headFingerprint(installation.control, server, installation.servers.adminUrl(server));
      return { server, known: await knownObjects(installation, server) };
    };

    const found = this.#servers.get(name) ?? read();
    this.#servers.set(name, found);
    return found;
  }
}

/** A server, with the objects that a tenant's database there has by its schema. */
interface KnownServer {
  readonly server: Server;
  readonly known: KnownObjects;
}
