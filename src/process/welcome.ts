import { httpAddress } from '../http/server-ports.ts';
import type { DemoLogin } from './demo-login.ts';

interface Addresses {
  readonly host: string;
  readonly port: number;
  readonly managementPort: number;
}

/** Returns the text that `npm start` prints: the addresses of the service and the login of the demo user. */
export function welcome({ host, port, managementPort }: Addresses, { tenant, email, password }: DemoLogin): string {
  const base = httpAddress(host, port);
  const json = `-H 'Content-Type: application/json'`;
  const call = `curl -s -w '\\n' -H "Authorization: Bearer $TOKEN"`;
  const credentials = `-H 'X-Tenant: ${tenant.guid}' ${json} -d '{"email":"${email}","password":"${password ?? '<password>'}"}'`;
  const login = `curl -s ${base}/api/v1/auth/login ${credentials}`;
  const setPassword = `npx backoffice user password ${tenant.slug} ${email}`;
  return [
    '',
    `  Sales back office    ${base}`,
    `  Guide                ${base}/docs`,
    `  Explorer             ${base}/swagger?tenant=${tenant.guid}`,
    `  Health               http://127.0.0.1:${managementPort}/health/ready`,
    `  Demo tenant          ${tenant.guid}`,
    `  Demo user            ${email}`,
    password
      ? `  Password             ${password}`
      : `  Password             was changed since the first start; to set a new one: ${setPassword}`,
    '',
    '  Log in:',
    `  ${login}`,
    '',
    '  Log in, read a list, make a customer, and find it:',
    `  TOKEN=$(${login} | sed -n 's/.*"accessToken":"\\([^"]*\\)".*/\\1/p')`,
    `  ${call} '${base}/api/v1/Countries?limit=3'`,
    `  ${call} ${base}/api/v1/Entities ${json} -d '{"Name":"Blue Harbour Ltd","EntityType":"customer"}'`,
    `  ${call} '${base}/api/v1/Entities?q=harbour'`,
    '',
  ].join('\n');
}
