import { expect } from 'chai';
import { runCommand } from '../../support/run-command.ts';
import { useLogin, useWorld } from '../../support/world.ts';
import { useConsole } from './console-client.ts';

const wholeNumber = 'Give a whole number above 0.';
const time = 'Give a time such as 2026-11-22T14:00Z, with its zone, or 90m, 12h, 7d.';

/** The reasons why values are refused; undefined for those that are taken. */
type Reasons = Readonly<Record<string, string | undefined>>;

const names: Reasons = {
  'O\'Hara & “Söhne” "Ltd"': undefined,
  'שלום עולם': undefined,
  '👩‍👩‍👧 Ltd': undefined,
  '<script>alert(1)</script>': undefined,
  '  Acme  Two ': undefined,
  '-rf': undefined,
  '$(reboot) `id` %s \\': undefined,
  'a\nb': 'must not contain control characters',
  'a\r\nb': 'must not contain control characters',
  'a\tb': 'must not contain control characters',
  'a\u0085b': 'must not contain control characters',
  '\u001b[31mred': 'must not contain control characters',
  '\u200b': 'must not be empty',
  [`${'x'.repeat(10_000)}`]: 'must be at most 255 characters long',
};

const numbers: Reasons = {
  '5': undefined,
  '1e3': wholeNumber,
  '-0': wholeNumber,
  '0': wholeNumber,
  '05': wholeNumber,
  '5.0': wholeNumber,
  '+5': wholeNumber,
  '0x5': wholeNumber,
  '1_000': wholeNumber,
  '1,000': wholeNumber,
  '٥': wholeNumber,
  '999999999999': wholeNumber,
  '2 h': wholeNumber,
};

const times: Reasons = {
  '2026-11-21T14:05Z': undefined,
  '2026-11-21T14:05:30+05:45': undefined,
  '2026-11-21 14:05:30-08': undefined,
  '2026-11-21': undefined,
  '90m': undefined,
  '7d': undefined,
  '1.5h': time,
  '-7d': time,
  P1D: time,
  yesterday: time,
  '2026-02-30T00:00Z': time,
  '2026-11-21T25:00Z': time,
  '2026-11-21T14:05 Europe/Berlin': time,
  '1795761376627': time,
};

/** Returns a text of a page without its markup. */
function plain(html: string): string {
  return html
    .replace(/<[^>]+>/g, '')
    .replace(/&#(\d+);/g, (_, code: string) => String.fromCharCode(Number(code)));
}

describe('console: values', () => {
  const world = useWorld();
  const opened = useConsole(world);
  const admin = useLogin(world, 'acme');

  /** Returns what a form says of a value, whether at once or after its plan. */
  async function saidByForm(path: string, fields: Record<string, string>): Promise<string> {
    const answer = await opened.submit(path, { ...fields, step: 'plan' });
    const isRun = answer.path.startsWith('/runs/');
    const { text } = isRun ? await opened.ended(answer.path) : answer;

    return plain(text);
  }

  /** Returns what the command line says of a value. */
  async function saidByCommand(...args: string[]): Promise<string> {
    const { stdout, stderr } = await runCommand('scripts/tenant.ts', args, world.environment);
    return `${stdout}${stderr}`;
  }

  it('a name is taken or refused in a form for the reason of the command line and of the API', async () => {
    for (const [value, reason] of Object.entries(names)) {
      const label = JSON.stringify(value.slice(0, 40));
      const fields = { slug: 'acme', email: 'new@acme.test', firstName: value };

      const form = await saidByForm('/operations/user/add', fields);
      const command = await saidByCommand(
        'user',
        'add',
        'acme',
        fields.email,
        `--first-name=${value}`,
        '--dry-run',
      );
      const { status, body } = await admin.post('/api/v1/Users', {
        Email: `new${Math.random()}@acme.test`,
        FirstName: value,
        LastName: 'User',
        Role: 'Member',
        Scope: 'All',
      });

      if (reason === undefined) {
        expect(form, label).to.include('The plan is ready.');
        expect(command, label).to.include('Would be added');
        expect(status, `${label}: ${JSON.stringify(body)}`).to.equal(201);
      } else {
        expect(form, label).to.match(new RegExp(`first name\\W* ${reason}`, 'i'));
        expect(command, label).to.match(new RegExp(`first[ -]name ${reason}`));
        expect(status, label).to.equal(400);
        expect(JSON.stringify(body.errors.FirstName), label).to.include(reason);
      }
    }
  });

  it('a number is taken or refused in a form for the reason of the command line', async () => {
    for (const [value, reason] of Object.entries(numbers)) {
      const form = await saidByForm('/operations/migrate', { all: 'on', canary: value });
      const command = await saidByCommand('migrate', '--all', '--dry-run', `--canary=${value}`);

      expect(form, value).to.include(
        reason === undefined ? 'The plan is ready.' : `Canaries: ${reason}`,
      );
      if (reason === undefined) expect(command, value).to.not.include('is invalid');
      else expect(command, value).to.include(`is invalid. ${reason}`);
    }
  });

  it('a time is taken or refused in a form for the reason of the command line', async () => {
    for (const [value, reason] of Object.entries(times)) {
      const form = await opened.submit('/operations/logs', { since: value, step: 'command' });
      const command = await saidByCommand('logs', `--since=${value}`);

      if (reason === undefined) {
        expect(plain(form.text), value).to.include('As a command');
        expect(command, value).to.not.include('is invalid');
      } else {
        expect(plain(form.text), value).to.include(`From: ${reason}`);
        expect(command, value).to.include(`is invalid. ${reason}`);
      }
    }
  });

  it('a value that is taken is shown as a text again: in its form, in its plan and as a command', async () => {
    const name = `"><script>alert(1)</script> O'Hara & Söhne 👩‍👩‍👧`;

    const command = await opened.submit('/operations/edit', {
      slug: 'acme',
      name,
      step: 'command',
    });
    const planned = await opened.submit('/operations/edit', { slug: 'acme', name, step: 'plan' });
    const plan = await opened.ended(planned.path);

    for (const { text } of [command, plan]) {
      expect(text).to.not.include('<script>alert');
      expect(plain(text)).to.include(name.replace("'", `'\\''`));
    }
    expect(plain(plan.text)).to.include(`  ${name}`);
  });

  it('blanks around what is filled in are left out, and a zero byte is refused', async () => {
    const blanks = await opened.submit('/operations/migrate', {
      all: 'on',
      canary: ' 5 ',
      step: 'command',
    });
    const zero = await opened.submit('/operations/edit', {
      slug: 'acme',
      name: 'a\0b',
      step: 'plan',
    });

    expect(plain(blanks.text)).to.include('migrate --all --canary=5');
    expect(plain(zero.text)).to.include('Name: must not contain control characters');
  });
});
