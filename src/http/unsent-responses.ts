import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** A response that has ended, and that its client has not completely received. */
interface Unsent {
  readonly owner: string;
  readonly socket: Socket;
  /** The bytes in memory, an object that several responses may share. */
  readonly body: object;
}

/** A body in memory, and the number of unsent responses that share it. */
interface Body {
  readonly bytes: number;
  responses: number;
}

/**
 * Maximum memory of responses that clients have not received: 4 of the largest pages, or 9 of the largest lists. With
 * the large reads, and what a garbage collection has not yet freed of both, a process grows by at most some 350 MiB.
 */
const defaultMaxBytes = 64 * 1024 * 1024;

/**
 * Bounds the memory of responses that clients have not received. A client may request lists of 16 MB in a pipeline, on
 * many connections, and read none of them. Above the limit, connections are reset: of the owner with the most unsent
 * bytes, the one with the most, and the earliest of equals.
 */
export class UnsentResponses {
  readonly #maxBytes: number;
  /** By connection, in the order of the first unsent responses. Each set stays until the connection closes. */
  readonly #responses = new Map<Socket, Set<Unsent>>();
  readonly #bodies = new Map<object, Body>();
  #bytes = 0;
  #cut = 0;

  constructor(maxBytes = defaultMaxBytes) {
    this.#maxBytes = maxBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** The number of connections that were reset. */
  get cut(): number {
    return this.#cut;
  }

  /**
   * Counts a response that has ended. Almost every response has been sent by then, and needs only the first check.
   * @param body bytes that several responses send count once
   * @param owner a tenant
   */
  add(response: ServerResponse, socket: Socket, body: string | Buffer, owner: string): void {
    const bytes = response.writableLength;
    if (bytes === 0 || socket.destroyed) return;
    const unsent: Unsent = { owner, socket, body: typeof body === 'string' ? response : body };
    const shared = this.#bodies.get(unsent.body);
    if (shared) {
      shared.responses++;
    } else {
      this.#bodies.set(unsent.body, { bytes, responses: 1 });
      this.#bytes += bytes;
    }
    this.#responsesOf(socket).add(unsent);
    response.once('close', () => this.#remove(unsent));
    while (this.#bytes > this.#maxBytes) this.#cutOne();
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
    const body = this.#bodies.get(unsent.body);
    if (!body || !this.#responses.get(unsent.socket)?.delete(unsent)) return;
    body.responses--;
    if (body.responses > 0) return;
    this.#bodies.delete(unsent.body);
    this.#bytes -= body.bytes;
  }

  #cutOne(): void {
    const all = [...this.#responses.values()].flatMap(responses => [...responses]);
    const owner = this.#largest(all, unsent => unsent.owner);
    const ofOwner = all.filter(unsent => unsent.owner === owner);
    const socket = this.#largest(ofOwner, unsent => unsent.socket) as Socket; // while there are bytes, there is one
    this.#removeAll(socket);
    socket.resetAndDestroy();
    this.#cut++;
  }

  /** Returns the key whose responses have the most bytes together; of equals, the first. */
  #largest<Key>(responses: Unsent[], keyOf: (unsent: Unsent) => Key): Key | undefined {
    const sums = new Map<Key, number>();
    for (const unsent of responses) {
      const { bytes = 0, responses = 1 } = this.#bodies.get(unsent.body) ?? {};
      sums.set(keyOf(unsent), (sums.get(keyOf(unsent)) ?? 0) + bytes / responses);
    }
    let largest: Key | undefined;
    let max = -1;
    for (const [key, sum] of sums) {
      if (sum <= max) continue;
      largest = key;
      max = sum;
    }
    return largest;
  }
}
