import { expect } from 'chai';
import { ChangeFeed } from '../../src/control/change-feed.ts';
import { type ChangeTopic, changeChannel, changeTopics } from '../../src/control/change-topics.ts';
import { createDirectory } from '../../src/control/directory.ts';
import { ChangeWatch } from '../../src/sales/events/change-watch.ts';
import { TenantFences } from '../../src/tenancy/connections/tenant-fences.ts';
import { ResponseCache } from '../../src/tenancy/response-cache/response-cache.ts';
import { createIdleFeed, noBeat } from '../support/own-feed.ts';
import { controlSql, useWorld } from '../support/world.ts';

interface Trigger {
  table: string;
  /** The end of the definition of the trigger: `execute function f('argument', …)`. */
  definition: string;
  /** The body of its function. */
  body: string;
}

/** Records which topics are subscribed to. */
class RecordingFeed extends ChangeFeed {
  readonly subscribed: ChangeTopic[] = [];

  override subscribe(...[topic, invalidate]: Parameters<ChangeFeed['subscribe']>): void {
    this.subscribed.push(topic);
    super.subscribe(topic, invalidate);
  }
}

const allTopics = '*';

describe('change topics', () => {
  const world = useWorld();
  let triggers: Trigger[];

  before(async () => {
    triggers = await controlSql<Trigger>(
      world,
      `select tgrelid::regclass::text as table, pg_get_triggerdef(t.oid) as definition, prosrc as body
         from pg_trigger t join pg_proc p on p.oid = tgfoid
        where not tgisinternal and prosrc like '%pg_notify%'`,
    );
  });

  it('every topic is notified by a trigger of the control database, except those that the service announces', () => {
    const notified = new Set(triggers.map(topicOf).filter(topic => topic !== allTopics));
    expect([...notified, changeTopics.responses, changeTopics.changes].sort()).to.deep.equal(
      Object.values(changeTopics).sort(),
    );
  });

  it('every topic has exactly one subscriber in the service', async () => {
    const { installation, log } = world;
    const feed = new RecordingFeed({ url: installation.controlUrl, beat: noBeat, log });
    createDirectory({ ...installation, control: world.control, feed, log });
    new TenantFences({ feed, log, databases: { useFences: () => {} } } as never);
    new ResponseCache({ feed, announce: async () => {}, maxBytes: 1 });
    await new ChangeWatch({ feed } as never).stop();
    expect(feed.subscribed.sort()).to.deep.equal(Object.values(changeTopics).sort());
  });

  it('a second subscriber of a topic is refused, because it would replace the first', () => {
    const feed = createIdleFeed(world);
    feed.subscribe(changeTopics.users, () => {});
    expect(() => feed.subscribe(changeTopics.users, () => {})).to.throw('has a subscriber already');
  });

  it('every trigger notifies the channel that the change feed listens to', () => {
    for (const { body, table } of triggers) {
      const channels = [...body.matchAll(/pg_notify\('([^']*)'/g)].map(([, channel]) => channel);
      expect(new Set(channels), table).to.deep.equal(new Set([changeChannel]));
    }
  });

  it('truncating a table whose row changes are notified invalidates every topic', () => {
    const tables = (ofTopic: (topic: string) => boolean) =>
      [
        ...new Set(triggers.filter(trigger => ofTopic(topicOf(trigger))).map(({ table }) => table)),
      ].sort();
    expect(tables(topic => topic === allTopics)).to.deep.equal(
      tables(topic => topic !== allTopics),
    );
  });
});

/**
 * The topic that a trigger notifies: written in the body of its function, or the first argument
 * of the function.
 */
function topicOf({ table, definition, body }: Trigger): string {
  const literal = /pg_notify\('[^']*', '([^':]+):/.exec(body)?.[1];
  const argument = /execute function \w+\('([^']+)'/i.exec(definition)?.[1];
  const topic = literal ?? argument;
  if (topic === undefined) {
    throw new Error(`a trigger of ${table} notifies no topic that this test can recognise`);
  }
  return topic;
}
