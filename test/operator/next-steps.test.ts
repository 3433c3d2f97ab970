import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer, type Socket } from 'node:net';
import { expect } from 'chai';
import { SMTPServer } from 'smtp-server';
import { describeMailFailure } from '../../src/accounts/mails/mail-failure.ts';
import { SmtpTransport } from '../../src/accounts/mails/mail-transport.ts';
import { readConfig } from '../../src/lib/config/config.ts';
import { explain } from '../../src/lib/log/operator-error.ts';
import {
  type ErrorCause,
  serverCauses,
  statementCauses,
} from '../../src/lib/log/postgres-causes.ts';
import { withConnection } from '../../src/lib/postgres/connection.ts';
import { makeIdentity } from '../../src/operator/backup/archive/identities.ts';
import { openTarget } from '../../src/operator/backup/target/open-target.ts';
import { explainStoreError, storeCauses } from '../../src/operator/backup/target/s3-refusal.ts';
import { errorOf } from '../support/errors.ts';
import { freePort } from '../support/free-port.ts';
import { startMailServer } from '../support/mail-server.ts';
import { runCommand } from '../support/run-command.ts';
import { type S3Fault, startS3Server } from '../support/s3-server.ts';
import { postgresUrl } from '../support/test-server.ts';
import { use } from '../support/use.ts';
import { useLogin, useWorld } from '../support/world.ts';

const page = new URL('../../docs/operate/errors.md', import.meta.url);
const isSqlState = (code: string) => /^[0-9A-Z]{5}$/.test(code) && code !== 'EPIPE';
/** A word of an error that may be data. */
const data = 'secret-word';

/** The rows of a section of the page: codes, cause and next step, without backticks. */
async function rowsOf(
  heading: string,
): Promise<{ codes: string[]; cause: string; step: string }[]> {
  const text = await readFile(page, 'utf8');
  const [, section = ''] = text.split(`## ${heading}\n`);
  const [own = ''] = section.split('\n## ');
  const lines = own.split('\n').filter(line => /^\| `/.test(line));

  return lines.map(line => {
    const [codes = '', cause = '', step = ''] = line.slice(2, -2).replaceAll('`', '').split(' | ');
    return { codes: codes.split(', '), cause, step };
  });
}

/** Returns a cause as its row on the page. */
function rowOf({ codes, cause, step }: ErrorCause) {
  const sentence = (text: string) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
  return { codes: [...codes], cause: sentence(cause), step: sentence(step) };
}

function stepOf(code: string): string {
  return storeCauses.find(({ codes }) => codes.includes(code))?.step ?? '';
}

/** Returns how a store refuses each request with a code. */
function faultOf(code: string): S3Fault {
  const isStatus = /^\d{3}$/.test(code);
  if (isStatus) {
    return { kind: 'redirect', status: Number(code), location: 'https://elsewhere.test/backups' };
  }
  const statuses: Record<string, number> = { PermanentRedirect: 301, TemporaryRedirect: 307 };
  return { kind: 'status', status: statuses[code] ?? 403, code };
}

/** A server that speaks the protocol of PostgreSQL, and refuses each login with a code. */
async function startRefusing() {
  const sockets = new Set<Socket>();
  const refusing = { code: '', url: '', close: () => Promise.resolve() };
  const server = createServer(socket => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.on('data', message => {
      const isTlsRequest = message.length === 8 && message.readInt32BE(4) === 80_877_103;
      if (isTlsRequest) return socket.write('N');
      const fields = `SFATAL\0VFATAL\0C${refusing.code}\0M${data}\0\0`;
      const head = Buffer.from('E\0\0\0\0', 'latin1');
      head.writeInt32BE(4 + fields.length, 1);
      return socket.end(Buffer.concat([head, Buffer.from(fields, 'latin1')]));
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  refusing.url = `postgresql://operator:password@127.0.0.1:${port}/office`;
  refusing.close = async () => {
    for (const socket of sockets) socket.destroy();
    await new Promise(resolve => server.close(resolve));
  };
  return refusing;
}

describe('errors and their next steps', function () {
  this.slow(5_000);

  const world = useWorld();
  const admin = useLogin(world, 'acme');
  const refusing = use(startRefusing);
  const role = `steps_${randomBytes(5).toString('hex')}`;
  const password = randomBytes(12).toString('hex');

  before(() =>
    withConnection(postgresUrl(), client =>
      client.query(`create role ${role} login password '${password}'`),
    ),
  );
  after(() => withConnection(postgresUrl(), client => client.query(`drop role ${role}`)));

  /** The commands that meet a server first, each with what it calls the URL. */
  const doors: Record<
    string,
    { urlName: string; run: (url: string) => ReturnType<typeof runCommand> }
  > = {
    'npm start': {
      urlName: 'DATABASE_URL',
      run: url => runCommand('src/main.ts', [], { ...world.environment, DATABASE_URL: url }),
    },
    'control migrate': {
      urlName: 'DATABASE_URL',
      run: url =>
        runCommand('scripts/backoffice.ts', ['control', 'migrate'], {
          ...world.environment,
          DATABASE_URL: url,
        }),
    },
    'a command': {
      urlName: 'DATABASE_URL',
      run: url =>
        runCommand('scripts/backoffice.ts', ['list'], { ...world.environment, DATABASE_URL: url }),
    },
    'server add': {
      urlName: 'its URL',
      run: url =>
        runCommand('scripts/backoffice.ts', ['server', 'add', 'second'], world.environment, url),
    },
  };

  /** @param detail words beside the step, such as the path of a file */
  async function expectStep(
    door: string,
    url: string,
    { step, codes }: ErrorCause,
    detail = '',
  ): Promise<void> {
    const { urlName, run } = doors[door]!;
    const { code, stderr } = await run(url);

    expect(code, `${door}: ${codes}: ${stderr}`).to.equal(1);
    expect(stderr, `${door}: ${codes}`).to.include(step.replaceAll('its URL', urlName));
    expect(stderr, `${door}: ${codes}`).to.include(detail);
    expect(stderr, `${door}: ${codes}`).not.to.include(password);
    // A missing privilege, a refused login and a limit are named: those words have no data.
    const isNamed = codes.some(code => ['42501', '28000', '53300'].includes(code));
    const hasData = isNamed && url === refusing.url;
    expect(stderr.includes(data), `${door}: ${codes}: ${stderr}`).to.equal(hasData);
  }

  const causeOf = (code: string) => serverCauses.find(({ codes }) => codes.includes(code))!;

  it('the page of errors has each cause of PostgreSQL with its next step, as commands print them', async () => {
    const sections = [
      [await rowsOf('A server cannot be used'), serverCauses],
      [await rowsOf('A server refuses a statement'), statementCauses],
    ] as const;

    for (const [rows, causes] of sections) {
      expect(rows).to.deep.equal(causes.map(rowOf));
    }
  });

  for (const door of Object.keys(doors)) {
    it(`${door} ends with the next step of each error by which a real server refuses it`, async () => {
      const url = new URL(postgresUrl());
      url.username = role;
      url.password = password;
      url.pathname = '/postgres';
      const changed = (change: (changed: URL) => void) => {
        const copy = new URL(url);
        change(copy);
        return copy.href;
      };
      const alter = (sql: string) =>
        withConnection(postgresUrl(), client => client.query(`alter role ${role} ${sql}`));

      await expectStep(
        door,
        changed(copy => {
          copy.port = '1';
        }),
        causeOf('ECONNREFUSED'),
      );
      await expectStep(
        door,
        changed(copy => {
          copy.password = 'wrong';
        }),
        causeOf('28P01'),
      );
      await expectStep(
        door,
        changed(copy => {
          copy.password = '';
        }),
        causeOf('NO_PASSWORD'),
      );
      await expectStep(
        door,
        changed(copy => {
          copy.searchParams.set('sslmode', 'verify-full');
        }),
        causeOf('TLS_REFUSED'),
      );
      await expectStep(
        door,
        changed(copy => {
          copy.searchParams.set('sslmode', 'verify-full');
          copy.searchParams.set('sslrootcert', '/nowhere/ca.crt');
        }),
        causeOf('TLS_FILE'),
        '/nowhere/ca.crt as sslrootcert',
      );
      await alter('nologin');
      await expectStep(door, url.href, causeOf('28000'));
      await alter('login');
    });

    it(`${door} ends with the next step of each code by which a server can refuse it`, async () => {
      // A command tries ten seconds while a server is full, and has a sentence of its own for a
      // missing database.
      const others = ['53300', '3D000'];

      for (const cause of serverCauses) {
        for (const code of cause.codes.filter(each => isSqlState(each) && !others.includes(each))) {
          refusing.code = code;
          await expectStep(door, refusing.url, cause);
        }
      }
    });
  }

  it('a command whose statement is refused prints cause and next step, and no text of PostgreSQL', async () => {
    const control = world.installation.controlUrl;
    const refuseWith = (code: string) =>
      withConnection(control, client =>
        client.query(`
          create or replace function refuse_change() returns trigger language plpgsql as $$
            begin raise exception using errcode = '${code}', message = '${data}'; end $$;
          create or replace trigger refuse_change before update on tenants execute function refuse_change()`),
      );

    try {
      for (const cause of statementCauses) {
        for (const code of cause.codes) {
          await refuseWith(code);
          const { stderr } = await runCommand(
            'scripts/backoffice.ts',
            ['suspend', 'acme', '--yes'],
            world.environment,
          );
          expect(stderr, code).to.include(`(${code}): ${cause.cause}. ${cause.step}.`);
          expect(stderr, code).not.to.include(data);
        }
      }
    } finally {
      await withConnection(control, client =>
        client.query('drop function refuse_change() cascade'),
      );
    }
  });

  it('a request whose statement is refused gets no text of PostgreSQL, and the log has the code', async () => {
    const path = '/api/v1/EntityStatus';
    const causes = [...serverCauses, ...statementCauses];
    // A status has no code and nothing refers to it, so these two are no responses to its
    // creation.
    const others = ['23503', '23505'];
    const codes = causes
      .flatMap(cause => cause.codes)
      .filter(code => isSqlState(code) && !others.includes(code));

    await withConnection(world.acme.adminUrl, async client => {
      try {
        for (const code of codes) {
          await client.query(`
            create or replace function refuse_change() returns trigger language plpgsql as $$
              begin raise exception using errcode = '${code}', message = '${data}'; end $$;
            create or replace trigger refuse_change before insert on entity_statuses execute function refuse_change()`);
          world.logs.length = 0;
          const { status, body } = await admin.post(path, { Title: `Refused ${code}` });
          expect(status, code).to.be.oneOf([409, 400, 500, 503]);
          expect(JSON.stringify(body), code).not.to.include(data);
          const text = world.logs.join('\n');
          expect(text, code).not.to.include(data);
          if (status >= 500) expect(text, code).to.include(`"code":"${code}"`);
        }
      } finally {
        await client.query('drop function refuse_change() cascade');
      }
    });
  });

  it('the page of errors has each cause of a bucket with its next step', async () => {
    const rows = await rowsOf('Errors of the target of backups');

    expect(rows).to.deep.equal(storeCauses.map(rowOf));
  });

  it('a target ends with the next step of each code by which a store refuses it', async () => {
    const isRefusal = (code: string) =>
      /^[A-Z3]/.test(code) && !/^E[A-Z]|ProviderError$/.test(code);
    const codes = storeCauses.flatMap(cause => cause.codes).filter(isRefusal);
    expect(codes).to.include.members(['AccessDenied', 'SlowDown', 'PermanentRedirect', '301']);

    await Promise.all(
      codes.map(async code => {
        const s3 = await startS3Server('backups');
        s3.faultOf = () => faultOf(code);
        s3.changeBody = body => body.replace('<Message>', `<Message>${data} `);
        const target = await openTarget(readConfig(s3.environment).backup);

        const text = explain(await errorOf(target.check()));

        expect(text, code).to.include(`${stepOf(code)}.`);
        expect(text, code).to.match(/^s3:\/\/backups\/some\/prefix /);
        expect(text, code).not.to.include(data);
        await s3.close();
      }),
    );
  });

  it('a target ends with the next step of each code by which a store is not reached', () => {
    const isLocal = (code: string) => /^E[A-Z]|ProviderError$/.test(code);

    for (const code of storeCauses.flatMap(cause => cause.codes).filter(isLocal)) {
      const error = Object.assign(new Error(data), {
        name: code,
        ...(code.startsWith('E') && { code }),
      });
      const text = explain(explainStoreError('The bucket backups', 'list archives', error));
      expect(text, code).to.include(`${stepOf(code)}.`);
      expect(text, code).not.to.include(data);
    }
  });

  it('a backup and a new target end with the next step of a store that refuses them', async () => {
    const s3 = await startS3Server('backups');
    const environment = {
      ...world.environment,
      ...s3.environment,
      BACKUP_RECIPIENTS: (await makeIdentity()).recipient,
    };

    for (const [code, command] of [
      ['AccessDenied', ['backup', 'init']],
      ['NoSuchBucket', ['backup', 'run', '--all']],
      ['PermanentRedirect', ['backup', 'list']],
    ] as const) {
      s3.faultOf = () => faultOf(code);
      const { code: exit, stderr } = await runCommand(
        'scripts/backoffice.ts',
        [...command],
        environment,
      );

      expect(exit, `${command}: ${stderr}`).to.equal(1);
      expect(stderr, String(command)).to.include(`${stepOf(code)}.`);
    }

    await s3.close();
  });

  it('each failure of a mail server is on the page, by the code with which a real one ends an attempt', async () => {
    const rows = (await rowsOf('Errors of the mail server')).flatMap(({ codes }) => codes);
    const refusing = await startMailServer({ hideSMTPUTF8: true });
    refusing.refuse('nobody@acme.test', { code: 550, text: '5.1.1 no such user', at: 'RCPT' });
    refusing.refuse('text@acme.test', { code: 554, text: '5.7.1 looks like spam' });
    const withLogin = new SMTPServer({
      disabledCommands: ['STARTTLS'],
      allowInsecureAuth: true,
      onAuth: (_login, _session, done) => done(new Error('nobody has this login')),
    });
    const ended = createServer(socket => socket.destroy());
    const other = createServer(socket =>
      socket.on('error', () => {}).write('HTTP/1.1 400 Bad Request\r\n\r\n'),
    );
    for (const server of [ended, other, withLogin.server]) {
      server.listen(0, '127.0.0.1');
      await once(server, 'listening');
    }
    const at = (server: typeof ended): string =>
      `127.0.0.1:${(server.address() as { port: number }).port}`;
    const { host } = new URL(refusing.url);

    const found: Record<string, unknown> = {};
    for (const [name, url, to = 'somebody@acme.test'] of [
      ['recipient', refusing.url, 'nobody@acme.test'],
      ['text', refusing.url, 'text@acme.test'],
      ['letters', refusing.url, 'zoë@acme.test'],
      ['login', `smtp://somebody:password@${at(withLogin.server as typeof ended)}`],
      ['no STARTTLS', `${refusing.url}?requireTLS=true`],
      ['no TLS', `smtps://${host}`],
      ['nobody listens', `smtp://127.0.0.1:${await freePort()}`],
      ['no such host', 'smtp://nowhere.invalid'],
      ['connection ended', `smtp://${at(ended)}`],
      ['no mail server', `smtp://${at(other)}`],
    ] as const) {
      const transport = new SmtpTransport(url, 'http://localhost');
      const message = {
        to,
        from: { name: 'Office', address: 'office@acme.test' },
        subject: 's',
        text: 't',
        html: 't',
      };
      const error = await transport
        .send(message, () => {}, AbortSignal.timeout(20_000))
        .catch((cause: Error) => cause);
      transport.close();
      const { code, message: text } = describeMailFailure(error, to).answer;
      expect(code, `${name}: ${text}`).to.be.oneOf(rows);
      expect(text, name).not.to.include(to);
      found[name] = code;
    }

    expect(found).to.include({
      recipient: 'EENVELOPE',
      text: 'EMESSAGE',
      letters: 'EUTF8',
      login: 'EAUTH',
    });
    expect(found).to.include({ 'no STARTTLS': 'ETLS', 'no mail server': 'EPROTOCOL' });
    await refusing.close();
    for (const server of [ended, other, withLogin.server]) {
      server.close();
    }
  });

  it('an error of another kind keeps its own text', async () => {
    const error = await errorOf(Promise.reject(new Error('the disk of the folder is away')));

    expect(explain(error)).to.include('the disk of the folder is away');
  });
});
