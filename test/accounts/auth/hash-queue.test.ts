import { expect } from 'chai';
import { HashQueue, type HashRequester } from '../../../src/accounts/auth/hash-queue.ts';
import { Problem } from '../../../src/lib/problems.ts';
import { withDeadline } from '../../../src/lib/runtime/deadline.ts';

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

  it('waiting password hashes start in turns by client network and by tenant', async () => {
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

    for (const name of ['a1', 'a2', 'a3', 'a4', 'a5']) {
      enqueue(name, { tenant: 'A', network: 'flood' });
    }
    enqueue('b1', { tenant: 'B', network: 'other' });
    enqueue('a6', { tenant: 'A', network: 'single' });
    enqueue('a7', { tenant: 'A', network: 'single' });
    await settled();

    expect(refused).to.have.members([
      'a5 overloaded',
      'a4 overloaded',
      'a3 overloaded',
      'a7 overloaded',
    ]);

    while (queue.startNext());
    await settled();

    expect(started).to.deep.equal(['a1', 'b1', 'a6', 'a2']);
  });

  it('four networks that wait at many tenants neither refuse nor delay a waiter of another network', async () => {
    const queue = new HashQueue(48);
    const { started, refused, enqueue } = recorder(queue);

    for (let i = 0; i < 60; i++) {
      enqueue(`flood ${i}`, { tenant: `T${i}`, network: `flood ${i % 4}` });
    }
    enqueue('victim', { tenant: 'B', network: 'single' });

    for (let i = 0; i < 10; i++) {
      queue.startNext();
      enqueue(`later flood ${i}`, { tenant: `U${i}`, network: `flood ${i % 4}` });
    }
    await settled();

    expect(started).to.include('victim');
    expect(refused).to.not.include('victim overloaded');
  });

  it('many networks that wait at one tenant neither refuse nor delay a waiter of another tenant', async () => {
    const queue = new HashQueue(48);
    const { started, refused, enqueue } = recorder(queue);

    for (let i = 0; i < 60; i++) enqueue(`flood ${i}`, { tenant: 'A', network: `flood ${i}` });
    enqueue('victim', { tenant: 'B', network: 'single' });
    for (let i = 0; i < 4; i++) {
      queue.startNext();
      enqueue(`later flood ${i}`, { tenant: 'A', network: `later flood ${i}` });
    }
    await settled();

    expect(started).to.include('victim');
    expect(refused).to.not.include('victim overloaded');
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

  it('a request that reaches its deadline in the queue of password hashes is refused as overloaded', async () => {
    const queue = new HashQueue(2);
    const outcome = await withDeadline(50, async deadline => {
      await queue.enqueue({ tenant: 'A', network: 'n', deadline });
    }).catch(({ code }) => code);
    expect(outcome).to.equal('overloaded');
    expect(queue.length).to.equal(0);
  });
});
