import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import type { S3Login } from './s3-signature.ts';

/** A service that exchanges web identities for logins, as the STS of Amazon does. */
export interface StsServer {
  readonly url: string;
  /** The roles that were asked for, each with the web identity that did. */
  readonly exchanged: { readonly role: string; readonly token: string }[];
  close(): Promise<void>;
}

/** @param tokens the web identities that it trusts, and the login that each one gets */
export async function startStsServer(tokens: ReadonlyMap<string, S3Login>): Promise<StsServer> {
  const exchanged: StsServer['exchanged'] = [];

  const listener = createServer(async (request, response) => {
    const form = new URLSearchParams(await text(request));
    const [role, token] = [form.get('RoleArn') ?? '', form.get('WebIdentityToken') ?? ''];
    const login =
      form.get('Action') === 'AssumeRoleWithWebIdentity' ? tokens.get(token) : undefined;
    exchanged.push({ role, token });

    response.setHeader('content-type', 'text/xml');
    response.statusCode = login ? 200 : 400;
    response.end(login ? loginDocument(login) : refusal);
  });
  await once(listener.listen(0, '127.0.0.1'), 'listening');

  return {
    url: `http://127.0.0.1:${(listener.address() as AddressInfo).port}`,
    exchanged,
    close: async () => {
      listener.close();
      listener.closeAllConnections();
      await once(listener, 'close');
    },
  };
}

const space = 'xmlns="https://sts.amazonaws.com/doc/2011-06-15/"';
const refusal = `<ErrorResponse ${space}><Error><Type>Sender</Type><Code>InvalidIdentityToken</Code><Message>No</Message></Error></ErrorResponse>`;

function loginDocument({ accessKeyId, secretAccessKey, sessionToken }: S3Login): string {
  const expiration = new Date(Date.now() + 3_600_000).toISOString();

  return (
    `<AssumeRoleWithWebIdentityResponse ${space}><AssumeRoleWithWebIdentityResult>` +
    `<Credentials><AccessKeyId>${accessKeyId}</AccessKeyId><SecretAccessKey>${secretAccessKey}</SecretAccessKey>` +
    `<SessionToken>${sessionToken}</SessionToken><Expiration>${expiration}</Expiration></Credentials>` +
    '</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>'
  );
}
