import { expect } from 'chai';
import { HashQueue, type HashRequester } from '../../src/auth/hash-queue.ts';
import { withDeadline } from '../../src/deadline.ts';
import { Problem } from '../../src/errors.ts';

describe('queue of password hashes', () => {
  /** Adds a waiter, and records its name when it starts or is refused. */
  const recorder = (queue: HashQueue) => {
    const started: string[] = [];
    const refused: string[] = [];
    const enqueue = (name: string, requester: HashRequester): void => {
      queue.enqueue(requester).then(
        () => started.push(name),
        error => refused.push(`${name} ${error instanceof Problem ? error.code : error}`),
      );
    };
    return { started, refused, enqueue };
  };
  const settled = (): Promise<void> => new Promise(resolve => setImmediate(resolve));

  it('waiting password hashes start in turns by tenant, and by client network within a tenant', async () => {
    const queue = new HashQueue(10);
    const { started, enqueue } = recorder(queue);
    for (const name of ['a1', 'a2', 'a3']) enqueue(name, { tenant: 'A', network: 'flood' });
    enqueue('a4', { tenant: 'A', network: 'single' });
    enqueue('b1', { tenant: 'B', network: 'flood' });
    while (queue.startNext());
    await settled();
    expect(started).to.deep.equal(['a1', 'b1', 'a4', 'a2', 'a3']);
    expect(queue.length).to.equal(0);
  });

  it('a full queue of password hashes refuses the waiter of the tenant or network with the most waiters', async () => {
    const queue = new HashQueue(4);
    const { started, refused, enqueue } = recorder(queue);
    for (const name of ['a1', 'a2', 'a3', 'a4', 'a5']) enqueue(name, { tenant: 'A', network: 'flood' });
    enqueue('b1', { tenant: 'B', network: 'single' });
    enqueue('a6', { tenant: 'A', network: 'single' });
    enqueue('a7', { tenant: 'A', network: 'single' });
    await settled();
    expect(refused).to.have.members(['a5 overloaded', 'a4 overloaded', 'a3 overloaded', 'a7 overloaded']);
    while (queue.startNext());
    await settled();
    expect(started).to.deep.equal(['a1', 'b1', 'a6', 'a2']);
  });

  it('a client that leaves is removed from the queue of password hashes', async () => {
    const queue = new HashQueue(2);
    const { started, refused, enqueue } = recorder(queue);
    const client = new AbortController();
    enqueue('gone', { tenant: 'A', network: 'n', clientLeft: client.signal });
    enqueue('patient', { tenant: 'A', network: 'n' });
    client.abort();
    expect(queue.length).to.equal(1);
    enqueue('too late', { tenant: 'A', network: 'n', clientLeft: client.signal });
    while (queue.startNext());
    await settled();
    expect(started).to.deep.equal(['patient']);
    expect(refused).to.have.members(['gone invalid_request', 'too late invalid_request']);
  });

  it('a request whose deadline passes in the queue of password hashes gets overloaded, not unavailable', async () => {
    const queue = new HashQueue(2);
    const outcome = await withDeadline(50, async deadline => {
      await queue.enqueue({ tenant: 'A', network: 'n', deadline });
    }).catch(({ code }) => code);
    expect(outcome).to.equal('overloaded');
    expect(queue.length).to.equal(0);
  });
});
