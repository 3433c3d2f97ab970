/**
 * The PostgreSQL channel of the change feed. A payload is `<topic>:<key>`; `*` stands for all
 * topics or all keys.
 */
export const changeChannel = 'control_changes';

/**
 * The kinds of data whose changes the change feed announces. Triggers of the control database
 * notify all topics but `responses` and `changes`, which the service announces itself. A test
 * compares this list with the triggers and with the subscribers.
 */
export const changeTopics = {
  /** Key: the guid. Also notified when a signing key or the server of the tenant changes. */
  tenants: 'tenants',
  /** Key: the id, also for users and sessions. */
  roles: 'roles',
  users: 'users',
  sessions: 'sessions',
  /** The sessions that the providers of a tenant have opened. Key: the id of the tenant. */
  providerSessions: 'provider_sessions',
  /** Key: the hash, in the notation of PostgreSQL for `bytea`. */
  legacyTokens: 'legacy_tokens',
  /**
   * The keys of programs. Key: the hash, in the notation of PostgreSQL for `bytea`; and once more
   * the id.
   */
  programKeys: 'keys',
  /** Key: the guid of the tenant whose fence begins, closes or is lifted. */
  fences: 'fences',
  /**
   * Changes of a tenant's responses: `<tenant guid>/<resource>`, or the guid alone for all
   * resources.
   */
  responses: 'responses',
  /**
   * A change in the database of a tenant, by its guid; announced only while another process
   * follows the tenant. `?<process id>/<guid>` announces a follower. The service announces both
   * itself.
   */
  changes: 'changes',
} as const;
export type ChangeTopic = (typeof changeTopics)[keyof typeof changeTopics];

/**
 * Topic of the beats of processes (`Beat`), by `<process id>/<number>`. It has no subscriber:
 * the feed recognises those of its own process.
 */
export const beatTopic = 'beats';
