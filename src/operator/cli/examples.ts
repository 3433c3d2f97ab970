import type { Command } from 'commander';

/**
 * Examples of each command, as they follow the name of the program. A command that has only subcommands shows the first
 * example of each of them. What begins with `#` is a comment of the shell.
 */
const examples: Readonly<Record<string, readonly string[]>> = {
  provision: [
    'provision acme --name "Acme Ltd" --admin-email admin@acme.test --packs countries,currencies',
    'provision --file tenants/demo.json',
  ],
  edit: ['edit acme --name "Acme International Ltd" --reason "renamed"', 'edit acme --enable legacyTokens --dry-run'],
  suspend: ['suspend acme --reason "unpaid bill"'],
  resume: ['resume acme --reason "bill is paid"'],
  delete: ['delete acme --reason "contract ended"'],
  restore: [
    'restore acme # undo delete: serve the tenant again',
    'restore acme --to acme-old # its newest archive, as a new tenant beside it',
    'restore acme --archive 0b7e --to acme-old # an older archive: backup list acme',
    'restore acme --at 2026-11-21T14:05:00Z --to acme-old # its data of that moment; needs backup base',
    'restore acme --lost # its database is lost: put its newest archive in place',
  ],
  'restore diff': ['restore diff acme'],
  'restore swap': ['restore swap acme --reason "wrong import on Monday"'],
  'restore back': ['restore back acme'],
  purge: ['purge acme --reason "30 days after the end of the contract"'],
  clone: ['clone acme acme-test'],
  isolate: ['isolate acme-test', 'isolate acme-test --off'],
  'packs list': ['packs list', 'packs list acme'],
  'packs diff': ['packs diff acme --packs currencies'],
  'packs apply': ['packs apply acme --packs countries,units', 'packs apply acme # all packs'],
  export: ['export acme --to acme.tar'],
  refresh: ['refresh acme'],
  'user add': [
    'user add acme bob@acme.test --first-name Bob --last-name Miller --role Member --scope All',
    'user add acme bob@acme.test --password-stdin < password-file',
  ],
  'user list': ['user list acme', 'user list acme -o name'],
  'user change': ['user change acme bob@acme.test --role Administrator --scope All'],
  'user role': ['user role acme bob@acme.test', 'user role acme bob@acme.test Administrator'],
  'user disable': ['user disable acme bob@acme.test --reason "left the company"'],
  'user enable': ['user enable acme bob@acme.test'],
  'user password': ['user password acme bob@acme.test'],
  'user remove': ['user remove acme bob@acme.test --dry-run', 'user remove acme bob@acme.test --reason "asked for it"'],
  'role list': ['role list acme'],
  'role add': ['role add acme Buyer orders.read orders.write'],
  'role grant': ['role grant acme Buyer pricing.read'],
  'role revoke': ['role revoke acme Buyer orders.write'],
  'role remove': ['role remove acme Buyer'],
  'session list': ['session list acme', 'session list acme bob@acme.test'],
  'session revoke': ['session revoke acme --user bob@acme.test --reason "lost laptop"'],
  'key list': ['key list acme'],
  'key rotate': ['key rotate acme --reason "yearly rotation"'],
  'key disable': ['key disable acme 5f0a6c1e-9d1b-4f5e-8f3b-0a4c8d2e7b61 --reason "key was stolen"'],
  'client add': ['client add acme till@acme.test --name "Till in Graz"'],
  'client list': ['client list acme'],
  'client revoke': ['client revoke acme client-3f2a9c0d1b4e5f60 --reason "secret was stolen"'],
  migrate: [
    'migrate --all --dry-run # print what would run, and for which tenants',
    'migrate --all --canary 2 # migrate two tenants first, and stop if one of them fails',
    'migrate acme globex # only these tenants',
    'migrate --retry-failed # migrate the failed tenants again',
  ],
  rollback: ['rollback acme --reason "migration is wrong"'],
  'runs list': ['runs list --limit 5'],
  'runs show': ['runs show # the newest run', 'runs show 12'],
  'runs watch': ['runs watch'],
  'pool fill': ['pool fill --size 20'],
  'pool list': ['pool list'],
  'pool drain': ['pool drain --server second --dry-run', 'pool drain --server second'],
  'control migrate': ['control migrate'],
  'control service-login': ['control service-login'],
  'control register-key': ['control register-key'],
  'control reseal': ['control reseal'],
  'control restore': [
    'control restore # the control database is lost, the tenants are not',
    'control restore --all # everything is lost: a new machine, the archives and the master key',
    'control restore --at 2026-11-21T14:05:00Z # its state of that moment; needs backup base',
  ],
  'control after-restore': [
    'control after-restore # control restore does it by itself; run it after pg_restore',
    'control after-restore --replay --yes < url-file # the URL of the replaced control database',
  ],
  'server add': ['server add second --capacity 500 < url-file'],
  'server list': ['server list', 'server list -o wide'],
  'server set': ['server set second --capacity 500', 'server set second --capacity none'],
  'server drain': ['server drain second', 'server drain second --to third'],
  'server rebalance': ['server rebalance'],
  'server remove': ['server remove second --dry-run', 'server remove second --reason "machine is replaced"'],
  move: [
    'move acme --to second --plan # show what would be moved',
    'move acme --to second # move a tenant',
    'move acme --back # move it back, with everything that was written since',
  ],
  'move list': ['move list'],
  'move resume': ['move resume acme'],
  'move abort': ['move abort acme'],
  'move settle': ['move settle # all whose time has passed', 'move settle acme'],
  'backup run': ['backup run --all', 'backup run acme globex'],
  'backup list': ['backup list', 'backup list acme -o wide'],
  'backup verify': ['backup verify', 'backup verify acme'],
  'backup drill': ['backup drill --count 3'],
  'backup prune': ['backup prune', 'backup prune --base --keep 7d # base backups and their write-ahead log'],
  'backup base': [
    'backup base # the server of the control database',
    'backup base second --keep 3 # three base backups of that server stay',
    'backup base --keep 7d # those stay with which every moment of the last 7 days can be restored',
  ],
  retention: [
    'retention # show all tenants',
    'retention acme --activity 2y --audit 7y # set one',
    'retention --default --activity 5y # set the default of all tenants',
  ],
  'retention apply': ['retention apply --all --dry-run', 'retention apply --all'],
  'retention log': ['retention log', 'retention log acme'],
  list: ['list', 'list north --status active --sort -created', 'list -o name'],
  show: ['show acme'],
  status: ['status', 'status --watch'],
  processes: ['processes', 'processes --watch'],
  usage: [
    'usage # all tenants, this month',
    'usage acme --from 7d --by hour',
    'usage --from 2026-10-01 --to 2026-11-01 --csv # a month, for invoices',
  ],
  logs: ['logs acme', 'logs --command purge --since 30d -o wide'],
  doctor: ['doctor', 'doctor --fix'],
  completion: [
    'completion bash > ~/.local/share/bash-completion/completions/backoffice',
    'completion fish > ~/.config/fish/completions/backoffice.fish',
  ],
};

/** Adds the examples of a command to the end of its help. @param path its words, such as `user add` */
export function addExamples(command: Command, path: string): void {
  command.addHelpText('after', () => examplesText(examplesOf(command, path)));
}

function examplesOf(command: Command, path: string): readonly string[] {
  const below = () => command.commands.flatMap(each => examples[`${path} ${each.name()}`]?.slice(0, 1) ?? []);
  return examples[path] ?? below();
}

function examplesText(lines: readonly string[]): string {
  const commands = lines.map(line => line.replace(/ # .*/, ''));
  const width = Math.max(...commands.map(({ length }) => length));
  const texts = lines.map((line, at) => {
    const comment = / # .*/.exec(line)?.[0] ?? '';
    return `  npx backoffice ${commands[at]?.padEnd(comment ? width : 0)}${comment && ` ${comment}`}`;
  });
  return `\nExamples:\n${texts.join('\n')}`;
}
