import { Readable } from 'node:stream';
import {
  AbortMultipartUploadCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  ListMultipartUploadsCommand,
  ListObjectsV2Command,
  ListObjectVersionsCommand,
  PutObjectCommand,
  S3Client,
} from '@aws-sdk/client-s3';
import { Upload } from '@aws-sdk/lib-storage';
import { OperatorError } from '../../../lib/log/operator-error.ts';
import { runConcurrently } from '../../command/run-fleet.ts';
import { limitCalls, type StoreRequest } from './s3-calls.ts';
import { explainStoreError, refusalCode, statusOf } from './s3-refusal.ts';
import {
  DamagedObjectError,
  type Erased,
  MissingObjectError,
  type StoredDocument,
  type StoredObject,
  type Target,
  type WriteConditions,
} from './target.ts';
import { TargetCalls, type TargetLimits, targetLimits } from './target-calls.ts';

export interface S3Settings {
  readonly bucket: string;
  /** The prefix, without a slash at its ends; may be empty. */
  readonly prefix: string;
  /**
   * The endpoint of a store that is not Amazon's; undefined: that of the environment or the
   * profile, else Amazon's.
   */
  readonly endpoint: string | undefined;
  /** The region; undefined: that of the profile or of the machine, else us-east-1. */
  readonly region: string | undefined;
  /**
   * The login; undefined: the one that the chain of the SDK finds, such as a profile, a web
   * identity or the role of a machine.
   */
  readonly login:
    | {
        readonly accessKeyId: string;
        readonly secretAccessKey: string;
        readonly sessionToken?: string;
      }
    | undefined;
}

/**
 * Bytes of a part of an upload, above the 5 MiB that S3 demands. At most 10,000 parts: 78 GiB.
 */
const partBytes = 8 * 1024 * 1024;
/** Parts of one upload that are sent at the same time, each of which is in memory. */
const partsAtOnce = 2;
/** Times that a request is sent when the store is overloaded or closes the connection. */
const maxAttempts = 5;
const concurrentRemovals = 8;
/**
 * The number of successive refusals after which no further removal is tried: the login may not
 * remove, or a lock holds everything.
 */
const maxRefusals = 16;
const fallbackRegion = 'us-east-1';

/**
 * Responses to a condition that is not met: another version, a write at the same time, no
 * object.
 */
const unmet = [404, 409, 412];
/** Responses of a store that does not know the kind of request. */
const unknownRequest = [400, 405, 501];

/**
 * Opens a bucket of S3, or of a store with its protocol. An object up to 8 MiB is one request,
 * a larger one a multipart upload: both appear whole or not at all.
 */
export async function openS3Target(
  settings: S3Settings,
  limits: TargetLimits = targetLimits,
): Promise<Target> {
  const client = createClient(settings, settings.region);
  try {
    await client.config.region();
    return new S3Target(settings, client, limits);
  } catch {
    return new S3Target(settings, createClient(settings, fallbackRegion), limits);
  }
}

function createClient({ endpoint, login }: S3Settings, region: string | undefined): S3Client {
  return new S3Client({
    forcePathStyle: true,
    maxAttempts,
    requestHandler: {
      // `limitCalls` limits silence, because it knows what was sent.
      socketTimeout: 0,
    },
    ...(endpoint !== undefined && { endpoint }),
    ...(region !== undefined && { region }),
    ...(login && { credentials: login }),
  });
}

class S3Target implements Target {
  readonly description: string;
  readonly #bucket: string;
  readonly #prefix: string;
  readonly #client: S3Client;

  constructor({ bucket, prefix }: S3Settings, client: S3Client, limits: TargetLimits) {
    this.description = `s3://${bucket}${prefix && `/${prefix}`}`;
    this.#bucket = bucket;
    this.#prefix = prefix;
    this.#client = client;

    const calls = new TargetCalls(
      this.description,
      'Check AWS_ENDPOINT_URL and the network',
      limits,
    );
    limitCalls(client, this.description, calls, request => this.#callOf(request));
  }

  async check(): Promise<void> {
    const command = new ListObjectsV2Command({
      Bucket: this.#bucket,
      Prefix: this.#key(''),
      MaxKeys: 1,
    });
    await this.#explain('check the target', () => this.#client.send(command));
  }

  /** Only checks the bucket. It needs no mark, because it cannot be *not mounted*. */
  mark(): Promise<void> {
    return this.check();
  }

  async *list(prefix: string): AsyncGenerator<StoredObject> {
    const call = `list ${prefix}`;
    let token: string | undefined;

    do {
      const command = new ListObjectsV2Command({
        Bucket: this.#bucket,
        Prefix: this.#key(prefix),
        ContinuationToken: token,
      });
      const page = await this.#explain(call, () => this.#client.send(command));

      for (const { Key, Size, LastModified, ETag } of page.Contents ?? []) {
        if (Key === undefined) continue;
        const object = {
          name: this.#name(Key),
          size: Size ?? 0,
          modifiedAt: LastModified ?? new Date(0),
        };
        yield ETag === undefined ? object : { ...object, checksum: ETag };
      }

      const former = token;
      token = page.IsTruncated ? page.NextContinuationToken : undefined;
      if (page.IsTruncated && (token === undefined || token === former)) {
        throw new OperatorError(
          `${this.description} ended a list without its next page: ${call}. Try again`,
        );
      }
    } while (token !== undefined);
  }

  async read(name: string): Promise<Readable> {
    const call = `read ${name}`;
    const command = new GetObjectCommand({
      Bucket: this.#bucket,
      Key: this.#key(name),
      ChecksumMode: 'ENABLED',
    });
    const { Body } = await this.#explain(call, () => this.#client.send(command), name);

    return Readable.from(this.#chunksOf(Body as Readable, call), { objectMode: false });
  }

  async write(name: string, body: Readable): Promise<{ size: number }> {
    let size = 0;
    let bodyError: unknown;

    async function* counted(): AsyncGenerator<Buffer> {
      try {
        for await (const chunk of body) {
          size += chunk.length;
          yield chunk;
        }
      } catch (error) {
        bodyError = error;
        throw error;
      }
    }

    const upload = new Upload({
      client: this.#uploadClient(),
      params: {
        Bucket: this.#bucket,
        Key: this.#key(name),
        Body: Readable.from(counted(), { objectMode: false }),
      },
      partSize: partBytes,
      queueSize: partsAtOnce,
      leavePartsOnError: false,
    });

    try {
      await upload.done();
    } catch (error) {
      // The codes of the body, such as those of PostgreSQL, are none of the store.
      if (error === bodyError) throw error;
      throw explainStoreError(this.description, `write ${name}`, error);
    } finally {
      body.destroy();
    }

    return { size };
  }

  /**
   * Returns a client for an upload, which removes its parts after an error. If the store refuses
   * that, too, that second error would take the place of the first one: it is dropped, and the
   * next run removes the parts.
   */
  #uploadClient(): S3Client {
    const client = this.#client;

    const send = async (command: Parameters<S3Client['send']>[0]): Promise<unknown> => {
      try {
        return await client.send(command);
      } catch (error) {
        if (command instanceof AbortMultipartUploadCommand) return undefined;
        throw error;
      }
    };

    return Object.assign(Object.create(client), { send });
  }

  async remove(name: string): Promise<void> {
    const command = new DeleteObjectCommand({ Bucket: this.#bucket, Key: this.#key(name) });
    await this.#explain(`remove ${name}`, () => this.#client.send(command));
  }

  async erase(prefix: string): Promise<Erased> {
    const versions = await this.#listVersions(prefix);
    const found = await this.#withObjects(prefix, versions);

    let error: string | null = null;
    let removed = 0;
    let refusals = 0;
    await runConcurrently(found, concurrentRemovals, async ({ name, id }) => {
      if (refusals >= maxRefusals) return;

      const command = new DeleteObjectCommand({
        Bucket: this.#bucket,
        Key: this.#key(name),
        VersionId: id,
      });

      try {
        await this.#explain(`remove ${name}`, () => this.#client.send(command));
        removed++;
        refusals = 0;
      } catch (cause) {
        error = (cause as Error).message;
        refusals++;
      }
    });
    await this.removeUnfinished(prefix);

    const rest = await this.#withObjects(prefix, versions && (await this.#listVersions(prefix)));
    const left = rest.map(({ name, id }) =>
      id === undefined || id === 'null' ? name : `${name} (version ${id})`,
    );
    if (left.length > 0) error ??= 'the store still lists it';

    return {
      removed,
      left,
      error: error ?? (versions === undefined ? await this.#unseenVersions() : null),
    };
  }

  async removeUnfinished(prefix: string): Promise<void> {
    let markers: { KeyMarker?: string | undefined; UploadIdMarker?: string | undefined } = {};

    for (;;) {
      const command = new ListMultipartUploadsCommand({
        Bucket: this.#bucket,
        Prefix: this.#key(prefix),
        ...markers,
      });
      // Some stores do not list uploads, and a login may not. A rule of the bucket ends
      // forgotten ones.
      const page = await this.#unlessRefused(
        [403, ...unknownRequest],
        'list unfinished objects',
        () => this.#client.send(command),
      );

      for (const { Key, UploadId } of page?.Uploads ?? []) {
        const abort = new AbortMultipartUploadCommand({ Bucket: this.#bucket, Key, UploadId });
        await this.#unlessRefused([403, 404], `remove the unfinished ${Key}`, () =>
          this.#client.send(abort),
        );
      }

      // A page without a marker is no list of uploads.
      if (!page?.IsTruncated || page.NextKeyMarker === undefined) return;
      markers = { KeyMarker: page.NextKeyMarker, UploadIdMarker: page.NextUploadIdMarker };
    }
  }

  async readDocument(name: string): Promise<StoredDocument | undefined> {
    const call = `read ${name}`;
    const command = new GetObjectCommand({ Bucket: this.#bucket, Key: this.#key(name) });

    try {
      const { Body, ETag } = await this.#explain(call, () => this.#client.send(command), name);
      const chunks = await Array.fromAsync(this.#chunksOf(Body as Readable, call));
      // A proxy that compresses makes a tag weak. A condition with a weak tag is not met.
      const version = (ETag ?? '').replace(/^W\//, '');
      return { text: Buffer.concat(chunks).toString(), version };
    } catch (error) {
      if (error instanceof MissingObjectError) return undefined;
      throw error;
    }
  }

  async replaceDocument(name: string, text: string, former: string | undefined): Promise<boolean> {
    const condition = former === undefined ? { IfNoneMatch: '*' } : { IfMatch: former };
    const met = await this.#put(name, text, condition);
    if (met !== undefined) return met;

    // The store does not know conditions.
    if ((await this.readDocument(name))?.version !== former) return false;
    await this.#put(name, text, {});
    return true;
  }

  async tryConditions(name: string): Promise<WriteConditions> {
    const present = await this.readDocument(name);
    if (!present) return { ifNoneMatch: false, ifMatch: false };

    return {
      ifNoneMatch: (await this.#put(name, present.text, { IfNoneMatch: '*' })) === false,
      ifMatch: (await this.#put(name, present.text, { IfMatch: `"${'0'.repeat(32)}"` })) === false,
    };
  }

  /**
   * @returns false when the condition is not met; undefined when the store does not know it:
   *   nothing is written then
   */
  async #put(
    name: string,
    text: string,
    condition: { IfMatch?: string; IfNoneMatch?: string },
  ): Promise<boolean | undefined> {
    const command = new PutObjectCommand({
      Bucket: this.#bucket,
      Key: this.#key(name),
      Body: Buffer.from(text),
      ...condition,
    });

    try {
      await this.#client.send(command);
      return true;
    } catch (error) {
      const status = statusOf(error) ?? 0;
      const isConditional = Object.keys(condition).length > 0;
      if (isConditional && unmet.includes(status) && refusalCode(error) !== 'NoSuchBucket') {
        return false;
      }
      if (isConditional && unknownRequest.includes(status)) return undefined;
      throw explainStoreError(this.description, `write ${name}`, error);
    }
  }

  /**
   * Returns versions, and also the objects that are not among them: a store that does not know
   * versions may answer with an empty list.
   */
  async #withObjects(
    prefix: string,
    versions: readonly ObjectVersion[] = [],
  ): Promise<ObjectVersion[]> {
    const names = new Set(versions.map(({ name }) => name));
    const objects = await Array.fromAsync(
      this.list(prefix),
      ({ name }): ObjectVersion => ({ name }),
    );

    return [...versions, ...objects.filter(({ name }) => !names.has(name))];
  }

  /** @returns undefined when the store does not list versions, or this login may not */
  async #listVersions(prefix: string): Promise<ObjectVersion[] | undefined> {
    const versions: ObjectVersion[] = [];
    let markers: { KeyMarker?: string | undefined; VersionIdMarker?: string | undefined } = {};

    for (;;) {
      const command = new ListObjectVersionsCommand({
        Bucket: this.#bucket,
        Prefix: this.#key(prefix),
        ...markers,
      });
      const page = await this.#unlessRefused(
        [403, ...unknownRequest],
        `list versions of ${prefix}`,
        () => this.#client.send(command),
      );
      if (!page) return undefined;

      for (const { Key, VersionId } of [...(page.Versions ?? []), ...(page.DeleteMarkers ?? [])]) {
        if (Key !== undefined) versions.push({ name: this.#name(Key), id: VersionId });
      }

      if (!page.IsTruncated) return versions;
      // A page without a marker is no list of versions.
      if (page.NextKeyMarker === undefined) return undefined;
      markers = { KeyMarker: page.NextKeyMarker, VersionIdMarker: page.NextVersionIdMarker };
    }
  }

  /**
   * Returns why versions may be left, if they could not be listed; null: the store has none.
   */
  async #unseenVersions(): Promise<string | null> {
    const command = new ListObjectVersionsCommand({
      Bucket: this.#bucket,
      Prefix: this.#key(''),
      MaxKeys: 1,
    });
    const page = await this.#unlessRefused(unknownRequest, 'list versions', () =>
      this.#client.send(command),
    ).catch(() => 'refused' as const);

    return page === 'refused'
      ? 'this login may not list versions (s3:ListBucketVersions), so the bucket may still have former versions'
      : null;
  }

  async *#chunksOf(body: Readable, call: string): AsyncGenerator<Buffer> {
    try {
      for await (const chunk of body) {
        yield chunk;
      }
    } catch (error) {
      if (error instanceof OperatorError) throw error;
      throw new DamagedObjectError(
        `${this.description} sent bytes that differ from its own checksum of them: ${call}. Try again; if it stays, ` +
          'the object is damaged',
        { cause: error },
      );
    }
  }

  /**
   * @param object that may be missing
   * @throws {MissingObjectError} when it is
   */
  async #explain<T>(call: string, send: () => Promise<T>, object?: string): Promise<T> {
    try {
      return await send();
    } catch (error) {
      if (object !== undefined && refusalCode(error) === 'NoSuchKey') {
        throw new MissingObjectError(this.description, object);
      }
      throw explainStoreError(this.description, call, error);
    }
  }

  /** @returns undefined for a response with one of the statuses */
  async #unlessRefused<T>(
    statuses: readonly number[],
    call: string,
    send: () => Promise<T>,
  ): Promise<T | undefined> {
    try {
      return await send();
    } catch (error) {
      if (statuses.includes(statusOf(error) ?? 0)) return undefined;
      throw explainStoreError(this.description, call, error);
    }
  }

  /** Names a request for messages. */
  #callOf({ method, path, query }: StoreRequest): string {
    const [, , ...parts] = path.split('/').map(decodeURIComponent);
    const name = this.#name(parts.join('/'));
    const prefix = typeof query?.prefix === 'string' ? this.#name(query.prefix) : '';

    if (parts.join('/') === '') {
      if (query?.['max-keys'] === '1') return 'check the target';
      if (query && 'uploads' in query) return 'list unfinished objects';
      return `list ${prefix}`;
    }
    if (method === 'GET') return `read ${name}`;
    return method === 'DELETE' ? `remove ${name}` : `write ${name}`;
  }

  #key(name: string): string {
    return this.#prefix ? `${this.#prefix}/${name}` : name;
  }

  #name(key: string): string {
    return this.#prefix ? key.slice(this.#prefix.length + 1) : key;
  }
}

interface ObjectVersion {
  readonly name: string;
  /** Undefined where versions are not listed. */
  readonly id?: string | undefined;
}
