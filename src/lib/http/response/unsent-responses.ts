import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/**
 * A response that has ended, or a piece of one, that its client has not completely received.
 */
interface Unsent {
  readonly socket: Socket;
  readonly body: Body;
}

/** Bytes in memory, and the number of unsent responses that share them. */
interface Body {
  /** The object that holds the bytes. */
  readonly key: object;
  readonly owner: string;
  readonly bytes: number;
  responses: number;
}

interface Limits {
  /** The bytes of all owners. */
  readonly bytes: number;
  readonly bytesOfOwner: number;
}

const mebibyte = 1024 * 1024;

/**
 * Maximum memory of the responses that clients have not received: 4 of the largest pages, or 9
 * of the largest lists. One tenant has at most three quarters of it, so that other tenants find
 * some. Together with the large reads, and with the memory of both that a garbage collection
 * has not freed yet, a process grows by at most some 350 MiB.
 */
const defaultLimits: Limits = { bytes: 64 * mebibyte, bytesOfOwner: 48 * mebibyte };

/**
 * Bounds the memory of the bytes that clients have not received: of responses that have ended,
 * and of pieces of streams and exports. A client may request lists of 16 MB in a pipeline, or
 * open streams, on many connections, and read nothing.
 *
 * `send` bounds a single stream or export: its next piece is made when the one before was
 * taken. Above a limit of several, connections are reset, beginning with that of the most
 * unsent bytes, the earliest of equals: of the owner that is above its own limit, or else of
 * the owner with the most unsent bytes. How long a client may take is bounded by
 * `Connections.cutSlowReaders`.
 */
export class UnsentResponses {
  readonly #limits: Limits;
  /**
   * The unsent responses by connection, in the order of the first ones. Each set stays until
   * the connection closes.
   */
  readonly #responses = new Map<Socket, Set<Unsent>>();
  readonly #bodies = new Map<object, Body>();
  /** The unsent bytes of each owner that has any. */
  readonly #owners = new Map<string, number>();
  #bytes = 0;
  #cut = 0;

  constructor(limits = defaultLimits) {
    this.#limits = limits;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** The number of connections that were reset. */
  get cut(): number {
    return this.#cut;
  }

  /**
   * Counts a response that has ended. Almost every response has been sent by then, and needs
   * only the first check.
   * @param body bytes that several responses of an owner send count once
   * @param owner a tenant
   */
  add(response: ServerResponse, socket: Socket, body: string | Buffer, owner: string): void {
    const bytes = response.writableLength;
    if (bytes === 0 || socket.destroyed) return;

    const unsent = this.#count(socket, typeof body === 'string' ? response : body, bytes, owner);
    response.once('close', () => this.#remove(unsent));
    this.#cutAbove(owner);
  }

  /**
   * Sends a piece of a response that has not ended, and counts it until the connection has
   * taken all of it.
   * @param owner a tenant
   * @returns a promise that resolves when the connection has taken it, or has closed
   */
  send(response: ServerResponse, piece: string, owner: string): Promise<void> {
    const { socket } = response.req;
    if (socket.destroyed || piece === '') return Promise.resolve();

    const bytes = Buffer.from(piece);
    const unsent = this.#count(socket, bytes, bytes.length, owner);

    return new Promise(resolve => {
      const onTaken = (): void => {
        socket.off('close', onTaken);
        this.#remove(unsent);
        resolve();
      };
      socket.once('close', onTaken);
      response.write(bytes, onTaken);
      this.#cutAbove(owner);
    });
  }

  #count(socket: Socket, key: object, bytes: number, owner: string): Unsent {
    let body = this.#bodies.get(key);
    if (!body) {
      body = { key, owner, bytes, responses: 0 };
      this.#bodies.set(key, body);
      this.#change(owner, bytes);
    }
    body.responses++;

    const unsent: Unsent = { socket, body };
    this.#responsesOf(socket).add(unsent);
    return unsent;
  }

  /** A response that waits in a pipeline gets no event when its connection closes. */
  #responsesOf(socket: Socket): Set<Unsent> {
    let responses = this.#responses.get(socket);
    if (!responses) {
      responses = new Set();
      this.#responses.set(socket, responses);
      socket.once('close', () => this.#removeAll(socket));
    }
    return responses;
  }

  #removeAll(socket: Socket): void {
    for (const unsent of this.#responses.get(socket) ?? []) this.#remove(unsent);
    this.#responses.delete(socket);
  }

  #remove(unsent: Unsent): void {
    const { socket, body } = unsent;
    if (!this.#responses.get(socket)?.delete(unsent)) return;
    body.responses--;
    if (body.responses > 0) return;
    this.#bodies.delete(body.key);
    this.#change(body.owner, -body.bytes);
  }

  #change(owner: string, bytes: number): void {
    this.#bytes += bytes;

    const ofOwner = (this.#owners.get(owner) ?? 0) + bytes;
    if (ofOwner === 0) this.#owners.delete(owner);
    else this.#owners.set(owner, ofOwner);
  }

  #cutAbove(owner: string): void {
    while ((this.#owners.get(owner) ?? 0) > this.#limits.bytesOfOwner) this.#cutOne(owner);
    while (this.#bytes > this.#limits.bytes) this.#cutOne(largest(this.#owners));
  }

  /**
   * Resets the connection of an owner that has the most unsent bytes; a shared body counts in
   * equal parts.
   */
  #cutOne(owner: string): void {
    const sums = new Map<Socket, number>();
    for (const [socket, responses] of this.#responses) {
      for (const { body } of responses) {
        if (body.owner === owner) {
          sums.set(socket, (sums.get(socket) ?? 0) + body.bytes / body.responses);
        }
      }
    }

    const socket = largest(sums);
    this.#removeAll(socket);
    socket.resetAndDestroy();
    this.#cut++;
  }
}

/** Returns the key with the largest number of a map that is not empty; of equals, the first. */
function largest<Key>(numbers: ReadonlyMap<Key, number>): Key {
  let found: { key: Key; number: number } | undefined;
  for (const [key, number] of numbers) {
    if (!found || number > found.number) found = { key, number };
  }
  return found!.key;
}
