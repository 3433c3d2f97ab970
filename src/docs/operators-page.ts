import { html, page } from './html.ts';

const contents = [
  ['day-one', 'Day one'],
  ['day-two', 'Day two'],
  ['upgrades', 'Upgrades'],
  ['keys', 'Keys and people'],
  ['incidents', 'Incidents'],
  ['capacity', 'Capacity'],
] as const;

const command = (text: string) => html`<pre><code>${text}</code></pre>`;

/** For those who run the service. */
export function operatorsPage(): string {
  const body = html`
<h1>Operating the service</h1>
<p class="lead">Every company has a PostgreSQL database and a login role of its own. The control database knows them all. The command
line works beside a running service and without one; <code>--help</code> explains each command, <code>--json</code> is for scripts,
and the exit code is 0 for done, 1 for failed, 2 for wrong usage.</p>

<h2 id="day-one">Day one</h2>
<p>You need PostgreSQL 16 or newer with a login that may create databases and roles, and 32 random bytes for the master key. Keep
the master key where you keep your other secrets: without it no tenant can be opened again.</p>
${command(`export DATABASE_URL=postgresql://operator:…@db.internal/backoffice
export MASTER_KEY=$(openssl rand -base64 32)
npm run control -- migrate
npm start`)}
${command(`npm run -s tenant -- provision northwind --name "Northwind Ltd" --admin-email admin@northwind.test
npm run -s tenant -- show northwind`)}
<p>The first administrator's password is shown once. Killed at any moment, the same command completes what it began. Point the load
balancer's check at <code>/health/ready</code> on <code>MANAGEMENT_PORT</code>, and let it wait 30 seconds after SIGTERM.</p>
<p>Several processes can serve the same installation. Give them one <code>REDIS_URL</code>, so that they count requests together.</p>

<h2 id="day-two">Day two</h2>
${command(`npm run -s tenant -- list
npm run -s tenant -- suspend northwind      # refused everywhere within a second
npm run -s tenant -- resume northwind
npm run -s tenant -- clone northwind northwind-training
npm run -s tenant -- delete northwind       # out of service, data kept
npm run -s tenant -- restore northwind
npm run -s tenant -- purge northwind        # gone for good`)}
<p>When many tenants come, databases can wait for them, and a folder of manifests is provisioned at once:</p>
${command(`npm run -s tenant -- pool fill --size 20
npm run -s tenant -- provision --file tenants/`)}
<p><code>doctor</code> looks at everything: rows without a database and databases without a row, tenants that got stuck, keys and
secrets, rights that have grown, schemas that are not the template's. It says what to do, and <code>--fix</code> mends what can
be mended without a risk. Let it run every night.</p>
${command('npm run -s tenant -- doctor')}
<p>A clone has the data and the people as of one moment, a key and a role of its own, and no sessions; its source goes on being
served. More servers take tenants too; the URL of a server is read from stdin, because it holds a password:</p>
${command(`npm run -s tenant -- server add second --capacity 500 < second-server-url
npm run -s tenant -- server list`)}

<h2 id="upgrades">Upgrades</h2>
<p>Bring the control database to the new build's version, then the tenant databases, then start the new build. Until a tenant's
database is at the version that a running build needs, that tenant alone is answered 503 <code>migration_pending</code>.</p>
${command(`npm run control -- migrate
npm run -s tenant -- migrate --all`)}
<p>Look first, let a few tenants go ahead, then all. A tenant is migrated in one transaction, and compared with the template before
that is committed; one that fails stays as it was and does not stop the others. Ended in any way, also by <code>kill -9</code>, a
run is continued by the next. <code>status</code> lists the tenants that failed when a run last came to them, and
<code>--retry-failed</code> takes these. Every run and every rollback stays in the books of the control database.</p>
${command(`npm run -s tenant -- migrate --all --dry-run
npm run -s tenant -- migrate --all --canary 2
npm run -s tenant -- status
npm run -s tenant -- migrate --retry-failed
npm run -s tenant -- rollback northwind`)}
<p>Each build has a template of its own on every server. When the build before is gone, <code>pool fill</code> or
<code>doctor --fix</code> drops its template, and makes warm databases anew.</p>

<h2 id="keys">Keys and people</h2>
${command(`npm run -s tenant -- user add northwind bob@northwind.test --role Member
npm run -s tenant -- user password northwind bob@northwind.test    # ends every session of his
npm run -s tenant -- user disable northwind bob@northwind.test
npm run -s tenant -- session revoke northwind --user bob@northwind.test
npm run -s tenant -- key rotate northwind                     # nobody is logged out
npm run -s tenant -- key disable northwind <kid>              # every token of that key is refused at once
npm run -s tenant -- client list northwind                    # old programs, and how much they are used`)}
<p>To change the master key, start every process with the new one as <code>MASTER_KEY</code> and the old one as
<code>MASTER_KEY_PREVIOUS</code>, seal everything again, and take the old one away when the sessions of its time are over (30 days):</p>
${command('npm run control -- reseal')}

<h2 id="incidents">Incidents</h2>
<div class="table"><table>
<tr><th>What you see</th><th>What it means, and what to do</th></tr>
<tr><td>503 <code>migration_pending</code></td><td>That tenant's database is at another version than the build: <code>migrate</code> it, or start the build that fits.</td></tr>
<tr><td>503 <code>unavailable</code> for one tenant; the log has <code>TENANT_IDENTITY</code></td><td>The control database points at a database of another tenant. Nothing was served from it. Correct the pointer.</td></tr>
<tr><td>503 <code>unavailable</code> for one tenant; the log has <code>tenant_secrets_unusable</code></td><td>A secret does not open: a wrong <code>MASTER_KEY</code>, or a row that was moved or changed. Restore the row.</td></tr>
<tr><td>503 <code>overloaded</code></td><td>No connection, or no turn for hashing, came free in time. See Capacity.</td></tr>
<tr><td>Not ready; the log has <code>change_feed_lost</code></td><td>The control database is not reached. Nothing is served from memory until it is; then the service recovers by itself.</td></tr>
<tr><td>The log has <code>refresh_token_reused</code></td><td>A used refresh token came again: somebody may have copied it. Its session has been ended.</td></tr>
<tr><td>500 with a <code>traceId</code></td><td>Find the line with that id at level 50: it has the cause.</td></tr>
</table></div>

<h2 id="capacity">Capacity</h2>
<p>A process takes at most <code>CONNECTION_BUDGET</code> connections of each PostgreSQL server, over all tenants and the control
database (which has at most <code>CONTROL_CONNECTIONS</code> of them, and one for the change feed). Add that up over the processes and
stay below <code>max_connections</code>. A tenant has at most <code>TENANT_CONNECTIONS</code>, a third of them while other tenants use
the server too, and no more than its share while others wait. When more tenants are busy than fit, idle connections of one are given up for another; who waits longer than
<code>ACQUIRE_TIMEOUT_MS</code> is answered 503. An idle tenant costs a process a few kilobytes and no connection. Let the
service connect to PostgreSQL itself: a pooler that shares a session among transactions loses the locks by which answers in memory
are known to be current.</p>
<p>Reference data is served from memory, at most <code>RESPONSE_CACHE_MB</code>, while it is known to be current: a change made through any
process of the service is seen by all of them within a second. A change made by other means, such as psql, shows after a minute at
the latest, or at once after:</p>
${command('npm run -s tenant -- refresh northwind')}
<p>As long as PostgreSQL's own counters prove, every 10 seconds, that nobody has written to a database, its answers live on without
a connection to it, until the tenant itself is looked up again after ten minutes. Only a superuser can hide a change from them, with <code>track_counts</code> off; <code>refresh</code>
shows that too.</p>
<p><code>/metrics</code> on <code>MANAGEMENT_PORT</code> has the numbers in the format of Prometheus: requests and their times by route,
connections open, in use, waited for and given up by server, passwords hashed and waiting to be, answers from memory and from a
database, and how often one lived on, the event loop and the heap.</p>`;
  return page({ path: '/docs/operators', title: 'Operators', contents, body });
}
