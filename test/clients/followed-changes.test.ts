import { expect } from 'chai';
import {
  type BackOffice,
  type Change,
  createBackOffice,
  ProblemError,
} from '../../clients/typescript/src/back-office.ts';
import { accessTokenLifetimeSeconds, clockSkewSeconds } from '../../src/control/token-lifetime.ts';
import { type Following, follow } from '../sales/events/follow.ts';
import { eventually } from '../support/eventually.ts';
import { settle } from '../support/settle.ts';
import { type TestTenant, useWorld } from '../support/world.ts';

const statuses = '/api/v1/OrderStatuses';
/** The streams that a user may have in a process. */
const maxStreams = 5;
const orderStatus = { resource: 'OrderStatus', include: 'record' } as const;

describe('changes that the TypeScript client follows', () => {
  const world = useWorld();
  /** The paths of the requests that reached the service. */
  let sent: string[] = [];
  /** Called with each response. */
  let receive = (_: Response): unknown => undefined;
  let stop = new AbortController();

  beforeEach(async () => {
    receive = () => undefined;
    sent = [];
    stop = new AbortController();
    await settle(world.acme, world.globex);
  });

  afterEach(() => {
    stop.abort();
    world.clock.offsetSeconds = 0;
  });

  async function logIn(tenant: TestTenant): Promise<BackOffice> {
    const office = createBackOffice({
      url: world.url,
      tenant: tenant.guid,
      fetch: async request => {
        sent.push(new URL(request.url).pathname);
        const response = await fetch(request);
        await receive(response);
        return response;
      },
    });
    await office.login(tenant.admin.email, tenant.admin.password);
    return office;
  }

  const timesSent = (path: string): number => sent.filter(each => each === path).length;
  const create = (office: BackOffice, Name: string) => office.POST(statuses, { body: { Name } });

  it('a token ends at one moment, for requests and for the stream: one end, one refresh, one connection', async () => {
    const office = await logIn(world.acme);
    const other = await logIn(world.globex);
    const followed = office.followChanges(orderStatus, stop.signal);
    const first = followed.next();
    await eventually(() => timesSent('/api/v1/Changes/stream') === 1);
    await create(other, 'of globex');
    await create(office, 'before the end');
    expect((await first).value?.Record?.Name).to.equal('before the end');

    // From here on the token has expired, and is accepted for the clock skew.
    world.clock.offsetSeconds = accessTokenLifetimeSeconds + 2;
    await create(office, 'within the skew');
    expect((await followed.next()).value?.Record?.Name).to.equal('within the skew');
    expect(timesSent('/api/v1/Changes/stream'), 'within the skew').to.equal(1);

    world.clock.offsetSeconds = accessTokenLifetimeSeconds + clockSkewSeconds + 2;
    const after = followed.next();
    await eventually(() => timesSent('/api/v1/Changes/stream') > 1);
    await create(office, 'after the end');

    expect((await after).value?.Record?.Name).to.equal('after the end');
    expect(timesSent('/api/v1/Changes/stream')).to.equal(2);
    expect(timesSent('/api/v1/auth/refresh')).to.equal(1);
  });

  it('the place in the feed is taken when followChanges is called, not when the stream begins', async () => {
    const office = await logIn(world.acme);
    const isPlaceTaken = Promise.withResolvers<void>();
    receive = ({ url }) => {
      if (url.includes('/Changes')) isPlaceTaken.resolve();
    };
    const followed = office.followChanges(orderStatus, stop.signal);
    await isPlaceTaken.promise;

    await create(office, 'between call and stream');

    expect((await followed.next()).value?.Record?.Name).to.equal('between call and stream');
  });

  it('a caller without a stream is told so, receives the changes by pages, and goes on with the stream later', async () => {
    const office = await logIn(world.acme);
    const user = await world.login(world.acme);
    const open = [];
    for (let count = 0; count < maxStreams; count++) open.push(await follow(user));
    const statuses: [string, Error | undefined][] = [];
    receive = async ({ status }) => {
      if (status !== 429) return;
      receive = () => undefined;
      await create(office, 'without a stream');
    };
    const followed = office.followChanges(
      { ...orderStatus, onStatus: (status, error) => statuses.push([status, error]) },
      stop.signal,
    );
    const { value } = await followed.next();
    const [status, error] = statuses[0] ?? [];

    expect(status).to.equal('waiting');
    expect(error).to.be.instanceOf(ProblemError);
    expect((error as ProblemError).status).to.equal(429);
    expect((error as ProblemError).message).to.match(/^A user may have 5 streams/);
    expect((error as ProblemError).retryAfter).to.be.within(1, 60);
    expect(value?.Record?.Name).to.equal('without a stream');

    for (const each of open) each.close();
    const second = followed.next();
    await eventually(() => statuses.at(-1)?.[0] === 'open');
    await create(office, 'with a stream');
    expect((await second).value?.Record?.Name).to.equal('with a stream');
  });

  it('an import of 2,000 rows reaches a caller who gathers in a few lists, which have each change once', async () => {
    const office = await logIn(world.acme);
    const lists: Change[][] = [];
    const rows = Array.from({ length: 2_000 }, (_, index) => `Gathered ${index},customer`);

    const following = (async () => {
      const changes = office.followChanges({ resource: 'Entity', gather: 500 }, stop.signal);
      for await (const list of changes) {
        lists.push(list);
        if (lists.flat().length >= 2_000) return;
      }
    })();
    const imported = await office.POST('/api/v1/Imports', {
      params: { query: { resource: 'Entity' } },
      body: `Name,EntityType\n${rows.join('\n')}\n`,
      headers: { 'Content-Type': 'text/csv' },
    });
    await following;

    expect(imported.data?.Created).to.equal(2_000);
    expect(new Set(lists.flat().map(({ Key }) => Key)).size).to.equal(2_000);
    expect(lists.flat()).to.have.length(2_000);
    expect(lists.length).to.be.below(20);
  });

  it('a caller who gathers and leaves the loop ends the stream', async () => {
    const office = await logIn(world.acme);
    const changes = office.followChanges({ gather: 10 });
    const first = changes.next();
    await eventually(() => timesSent('/api/v1/Changes/stream') === 1);
    await create(office, 'gathered');
    expect((await first).value).to.have.length(1);

    await changes.return();

    const user = await world.login(world.acme);
    const open: Following[] = [];
    await eventually(async () => {
      for (const each of open.splice(0)) each.close();
      for (let count = 0; count < maxStreams; count++) open.push(await follow(user));
      return open.every(({ status }) => status === 200);
    });
    for (const each of open) each.close();
  });
});
