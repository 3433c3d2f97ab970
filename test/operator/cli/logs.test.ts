import { userInfo } from 'node:os';
import { expect } from 'chai';
import type { Command } from 'commander';
import { createProgram } from '../../../src/operator/cli/program.ts';
import type { ActionSummary } from '../../../src/operator/registry/list-actions.ts';
import type { ScriptResult } from '../../support/command-line.ts';
import { runCommand } from '../../support/run-command.ts';
import { controlSql, useWorld } from '../../support/world.ts';

describe('log of operators', () => {
  const world = useWorld();

  const run = (args: string[], input?: string): Promise<ScriptResult> =>
    runCommand('scripts/backoffice.ts', args, world.environment, input);
  const logs = async (...args: string[]): Promise<ActionSummary[]> =>
    JSON.parse((await run(['logs', ...args, '--json'])).stdout).items;

  it('a command that changes something writes one row: who, what, when, why, and how it ended', async () => {
    const before = Date.now();
    await run(['suspend', 'globex', '--reason', 'unpaid bill', '--yes']);
    await run(['resume', 'globex']);
    await run(['user', 'add', 'globex', 'bob@globex.test', '--role', 'Emperor']);
    await run(['list']);
    await run(['show', 'globex']);
    await run(['delete', 'globex']); // not confirmed

    const [refused, failed, resumed, suspended, ...more] = await logs('globex', '--all');
    expect(more).to.deep.equal([]);

    expect(suspended).to.deep.include({
      command: 'suspend',
      reason: 'unpaid bill',
      state: 'done',
      arguments: {},
    });
    expect(suspended).to.include({ tenant: world.globex.guid, error: null });
    expect(suspended?.operator).to.match(new RegExp(`^${userInfo().username}@`));
    expect(Date.parse(suspended?.startedAt ?? '')).to.be.within(before - 1_000, Date.now());

    expect(resumed).to.include({ command: 'resume', reason: null, state: 'done' });
    expect(failed).to.include({ command: 'user add', state: 'failed' });
    expect(failed?.arguments).to.deep.equal({ email: 'bob@globex.test', role: 'Emperor' });
    expect(failed?.error).to.match(/no role Emperor/);
    expect(refused).to.include({ command: 'delete', state: 'refused' });

    expect((await logs('globex', '--command', 'user')).map(({ command }) => command)).to.deep.equal(
      ['user add'],
    );
    expect(await logs('globex', '--since', '2100-01-01')).to.deep.equal([]);
  });

  it('a time that is no day of the calendar is refused, so that no other day takes its place', async () => {
    for (const time of ['2026-02-30', '2026-02-29T14:00Z', '2026-04-31', 'run 7', '2026-13-01']) {
      const { code, stderr } = await run(['logs', 'globex', '--since', time]);
      expect(code, time).to.equal(2);
      expect(stderr).to.include(`'${time}' is invalid. Give a time such as 2026-11-22T14:00Z`);
    }
    for (const time of ['2024-02-29', '2024-02-29T14:00:05+02:00', '90m']) {
      expect((await run(['logs', 'globex', '--since', time])).code, time).to.equal(0);
    }
  });

  it('a secret from stdin is in no row of the log', async () => {
    const password = 'a chosen long password';
    const email = world.acme.admin.email;
    expect(
      (await run(['user', 'password', 'acme', email, '--password-stdin', '--yes'], password)).code,
    ).to.equal(0);
    const url = 'postgresql://u:secret-word@127.0.0.1:1/x';
    expect((await run(['server', 'add', 'second'], url)).code).to.equal(1);
    const text = JSON.stringify(await logs());
    expect(text).to.include('user password').and.include('server add');
    expect(text).to.not.include(password).and.not.include('secret-word');
  });

  it('a purge leaves the rows of the tenant without their arguments, which may name people', async () => {
    await world.provision('gone');
    await run(['user', 'add', 'gone', 'bob@gone.test']);
    await run(['delete', 'gone', '--yes']);
    expect((await run(['purge', 'gone', '--yes', '--reason', 'contract ended'])).code).to.equal(0);
    const rows = await logs('gone');
    expect(rows.map(({ command, state, reason }) => [command, state, reason])).to.deep.equal([
      ['purge', 'done', 'contract ended'],
      ['delete', 'done', null],
      ['user add', 'done', null],
    ]);
    expect(JSON.stringify(rows)).to.not.include('bob@');
  });

  it('commands of timers are in the log: the last run of each day and outcome, and each run with a reason', async () => {
    const states = async () =>
      (await logs('--command', 'databases prune')).map(({ state, reason }) => [state, reason]);

    const setBack = (age: string) =>
      controlSql(
        world,
        `update operator_actions set started_at = started_at - interval '${age}' where command = ?`,
        ['databases prune'],
      );

    for (const reason of [[], ['--reason', 'disk is full'], [], []]) {
      await run(['databases', 'prune', ...reason]);
    }
    expect(await states()).to.deep.equal([
      ['done', null],
      ['done', 'disk is full'],
    ]);

    await setBack('2 days');
    await run(['databases', 'prune', 'nobody']);
    await run(['databases', 'prune']);
    await run(['databases', 'prune']);
    expect(await states()).to.deep.equal([
      ['done', null],
      ['failed', null],
      ['done', null],
      ['done', 'disk is full'],
    ]);

    await setBack('1 year');
    await run(['databases', 'prune']);
    expect(await states()).to.deep.equal([
      ['done', null],
      ['failed', null],
      ['done', 'disk is full'],
    ]);

    for (const command of ['backup run --all', 'backup drill', 'retention apply --all']) {
      await run(command.split(' '));
    }

    const failed = (await logs('--limit', '3')).map(({ command, state, error }) => [
      command,
      state,
      typeof error,
    ]);
    expect(failed).to.deep.equal([
      ['retention apply', 'failed', 'string'],
      ['backup drill', 'failed', 'string'],
      ['backup run', 'failed', 'string'],
    ]);
  });

  it('every command takes a reason, except those that change nothing', async () => {
    const program = await createProgram(() => true);

    const leaves = (command: Command, path: string): [string, Command][] =>
      command.commands.flatMap(child => [
        [`${path}${child.name()}`, child],
        ...leaves(child, `${path}${child.name()} `),
      ]);

    const printing = leaves(program, '').filter(([, { options }]) =>
      options.some(({ long }) => long === '--json'),
    );
    const without = printing.filter(([, { options }]) =>
      options.every(({ long }) => long !== '--reason'),
    );

    const reading =
      /(^| )(list|show|status|processes|usage|logs?|diff|databases|webhooks|console|watch|find)$|^backup (verify|keygen)$/;
    expect(without.map(([path]) => path).filter(path => !reading.test(path))).to.deep.equal([]);
    expect(printing.length - without.length).to.be.greaterThan(30);
  });
});
