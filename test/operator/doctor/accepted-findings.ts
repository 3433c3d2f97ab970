import { hostname, userInfo } from 'node:os';
import { expect } from 'chai';
import type { DedicatedServer } from '../../support/dedicated-server.ts';
import { runCommand } from '../../support/run-command.ts';

interface Finding {
  id: string;
  tenant: string | null;
  fixed: boolean;
  accepted: { by: string; at: string; reason: string } | null;
}

/**
 * Tests of accepted findings, which purge globex at the end.
 * @param server with acme and globex, where nothing is wrong
 */
export function acceptedFindings(server: DedicatedServer): void {
  let acme: string;
  let globex: string;
  /** Ids of the findings that all tests begin with. */
  let [ofAcme, ofGlobex] = ['', ''];

  before(async () => {
    [acme, globex] = [await server.databaseOf('acme'), await server.databaseOf('globex')];
    for (const role of [acme, globex]) await server.sql(`alter role "${role}" createdb`);
    const { code, findings } = await check();
    expect([code, findings.map(({ tenant }) => tenant)]).to.deep.equal([1, ['acme', 'globex']]);
    [ofAcme = '', ofGlobex = ''] = findings.map(({ id }) => id);
  });
  afterEach(() => server.control('delete from accepted_findings'));

  const doctor = (...args: string[]) => runCommand('scripts/tenant.ts', ['doctor', ...args], server.environment);
  const accept = (id: string) => doctor('accept', id, '--reason', 'they make reports');
  const check = async (...args: string[]): Promise<{ code: number | null; healthy: boolean; findings: Finding[] }> => {
    const { code, stdout } = await doctor('--json', ...args);
    return { code, ...JSON.parse(stdout) };
  };
  const of = (findings: Finding[], slug: string) => findings.find(({ tenant }) => tenant === slug) as Finding;

  it('doctor exits with 0 when every error is accepted, and shows who accepted each one, and why', async () => {
    const accepted = await accept(ofAcme);
    expect([accepted.code, accepted.stdout]).to.deep.equal([0, `Accepted: acme: role ${acme} is createdb\n`]);
    const one = await check();
    expect([one.code, one.healthy, of(one.findings, 'globex').accepted]).to.deep.equal([1, false, null]);
    const by = `${userInfo().username}@${hostname()}`;
    expect(of(one.findings, 'acme').accepted).to.deep.include({ by, reason: 'they make reports' });

    await accept(ofGlobex);
    const [text, both] = [await doctor(), await check()];
    expect([both.code, both.healthy, text.code]).to.deep.equal([0, true, 0]);
    expect(text.stdout).to.match(
      new RegExp(`^globex: accepted: role ${globex} is createdb \\[[0-9a-f]{8}\\]\n  by ${by} on 20\\d\\d-`, 'm'),
    );
    expect(text.stdout).to.match(/: 0 open problems, 0 fixed, 2 accepted\.\n$/);
  });

  it('doctor --fix leaves an accepted finding alone, and doctor reopen makes it an error again', async () => {
    await accept(ofAcme);
    const { findings } = await check('--fix');
    expect(findings.map(({ tenant, fixed }) => [tenant, fixed])).to.deep.equal([
      ['globex', true],
      ['acme', false],
    ]);
    const reopened = await doctor('reopen', ofAcme);
    expect([reopened.code, reopened.stdout]).to.deep.equal([0, `Open again: acme: role ${acme} is createdb\n`]);
    await server.sql(`alter role "${globex}" createdb`);
  });

  it('doctor --fix repairs only the findings that it names, and its plan shows them and changes nothing', async () => {
    const { code: before, findings: open } = await check();
    const { id } = of(open, 'acme');
    expect([before, of(open, 'acme').accepted], 'after doctor reopen').to.deep.equal([1, null]);
    const plan = await doctor('--fix', id, '--dry-run');
    expect([plan.code, plan.stdout]).to.deep.equal([
      0,
      `Would be checked again, and repaired:\nacme: role ${acme} is createdb [${id}]\n` +
        `  → Remove createdb from role ${acme} (npx backoffice doctor --fix ${id}).\n`,
    ]);
    const [unchosen, unknown] = [await doctor(id), await doctor('--fix', '00000000')];
    expect([unchosen.code, unknown.code]).to.deep.equal([2, 1]);
    expect(of((await check()).findings, 'acme').id).to.equal(id);
    const { code, findings } = await check('--fix', id);
    expect(code).to.equal(1);
    expect(findings.map(({ tenant, fixed }) => [tenant, fixed]).sort()).to.deep.equal([
      ['acme', true],
      ['globex', false],
    ]);
    await server.sql(`alter role "${acme}" createdb`);
  });

  it('an acceptance covers its own finding only, neither that of another tenant nor one with another text', async () => {
    await accept(ofAcme);
    await server.sql(`alter role "${acme}" createrole`);
    const { code, findings } = await check();
    expect([code, findings.map(({ accepted }) => accepted)]).to.deep.equal([1, [null, null]]);
    await server.sql(`alter role "${acme}" nocreaterole`);
  });

  it('a finding can be accepted only with a reason, and only while the last report has it', async () => {
    const [unknown, empty, missing, notAccepted] = [
      await accept('00000000'),
      await doctor('accept', ofAcme, '--reason', ' '),
      await doctor('accept', ofAcme),
      await doctor('reopen', ofAcme),
    ];
    expect([unknown.code, empty.code, missing.code, notAccepted.code]).to.deep.equal([1, 2, 2, 1]);
    expect(unknown.stderr).to.match(
      /^The last report of doctor has no finding 00000000\. Check again, .*: npx backoffice doctor\n$/,
    );
    expect(notAccepted.stderr).to.match(/^No finding [0-9a-f]{8} was accepted\./);
    expect(await server.control('select from accepted_findings')).to.deep.equal([]);
  });

  it('the control database stores the last report alone, as --json prints it, without statements', async () => {
    const { stdout } = await doctor('--json');
    const rows = await server.control<{ report: object; age: number; made_by: string }>(
      'select report, made_by, extract(epoch from now() - made_at)::float8 as age from doctor_reports',
    );
    expect(rows.map(({ report }) => report)).to.deep.equal([JSON.parse(stdout)]);
    expect(rows[0]?.made_by).to.equal(`${userInfo().username}@${hostname()}`);
    expect(rows[0]?.age).to.be.within(0, 600);
    expect(JSON.stringify(rows)).to.not.match(/"statements"|password|alter role/);
  });

  it('the log of operators has the acceptance with its reason, and the purge of a tenant removes it', async () => {
    await accept(ofGlobex);
    const { stdout } = await runCommand('scripts/tenant.ts', ['logs', '--json'], server.environment);
    expect(JSON.parse(stdout)[0]).to.deep.include({
      command: 'doctor accept',
      arguments: { finding: ofGlobex },
      reason: 'they make reports',
      state: 'done',
    });
    for (const command of ['delete', 'purge'])
      await runCommand('scripts/tenant.ts', [command, 'globex', '--yes'], server.environment);
    expect(await server.control('select from accepted_findings')).to.deep.equal([]);
  });
}
