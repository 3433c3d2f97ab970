import { expect } from 'chai';
import { nodeOptions, startProgram } from './support/command-line.ts';

describe('packages that a start loads', () => {
  it('a start without REDIS_URL and SMTP_URL loads neither ioredis nor nodemailer', async () => {
    const program = `
      const { createRequire } = await import('node:module');
      const { createRateLimitStore } = await import('./src/lib/http/steps/rate-limit/rate-limit-store.ts');
      const { openMailTransport } = await import('./src/accounts/mails/mail-transport.ts');
      await import('./src/service/server.ts');
      await createRateLimitStore({ redisUrl: undefined });
      const { cache } = createRequire(process.cwd() + '/x.js');
      const loaded = name => Object.keys(cache).some(file => file.includes('/node_modules/' + name + '/'));
      const before = ['koa', 'ioredis', 'nodemailer'].filter(loaded);
      openMailTransport({ smtpUrl: 'smtp://127.0.0.1:1', publicUrl: 'http://127.0.0.1' });
      console.log(JSON.stringify({ before, after: loaded('nodemailer') }));
      process.exit();`;

    const { stdout, stderr } = await startProgram(
      process.execPath,
      [...nodeOptions(), '--eval', program],
      {},
    ).ended;

    expect(stderr).to.equal('');
    expect(JSON.parse(stdout)).to.deep.equal({ before: ['koa'], after: true });
  });
});
