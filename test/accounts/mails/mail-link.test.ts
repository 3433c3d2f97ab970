import { randomBytes } from 'node:crypto';
import { expect } from 'chai';
import {
  isTokenOf,
  type LinkOwner,
  linkToken,
  newLink,
  parseLinkToken,
} from '../../../src/accounts/mails/mail-link.ts';
import { SecretBox } from '../../../src/control/secret-box.ts';

describe('tokens of links in mails', () => {
  const [former, next] = [randomBytes(32), randomBytes(32)];
  const owner: LinkOwner = {
    link: newLink(),
    kind: 'reset',
    tenantGuid: 'f3b2f0ab-96ef-4a0c-9f75-0c3f0e7a2f10',
    userGuid: '0d6b0c0e-1f0d-4a8a-9f3e-2b8f8e1f5a77',
  };
  const opens = (secrets: SecretBox, token: string, of = owner): boolean => {
    const parsed = parseLinkToken(token);
    return parsed !== undefined && parsed.link === of.link && isTokenOf(secrets, parsed, of);
  };

  it('a token is the same at each attempt, and opens nothing of another kind, tenant, user or delivery', () => {
    const secrets = new SecretBox(former);
    const token = linkToken(secrets, owner);

    expect(linkToken(secrets, owner)).to.equal(token);
    expect(opens(secrets, token)).to.equal(true);
    const others: Partial<LinkOwner>[] = [
      { kind: 'invitation' },
      { tenantGuid: owner.userGuid },
      { userGuid: owner.tenantGuid },
      { link: newLink() },
    ];
    for (const other of others) {
      expect(opens(secrets, token, { ...owner, ...other })).to.equal(false);
    }
  });

  it('while the master key is changed, tokens of either key are good; without the former key, its tokens are not', () => {
    const before = linkToken(new SecretBox(former), owner);
    const changing = new SecretBox(next, former);
    const after = linkToken(changing, owner);

    expect(after).to.not.equal(before);
    for (const token of [before, after]) expect(opens(changing, token)).to.equal(true);
    expect(opens(new SecretBox(next), after)).to.equal(true);
    expect(opens(new SecretBox(next), before)).to.equal(false);
  });

  it('another spelling of the same bytes is no token', () => {
    const token = linkToken(new SecretBox(former), owner);
    const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
    const last = alphabet.indexOf(token.at(-1) ?? '');

    const respelled = token.slice(0, -1) + alphabet[last ^ 1];

    expect(Buffer.from(respelled.slice(23), 'base64url')).to.deep.equal(
      Buffer.from(token.slice(23), 'base64url'),
    );
    expect(parseLinkToken(respelled)).to.equal(undefined);
  });
});
