import { randomUUID } from 'node:crypto';
import type { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect } from 'chai';
import { withConnection } from '../../../src/lib/postgres/connection.ts';
import { boundsOf } from '../../../src/operator/backup/archive/archive-bytes.ts';
import { makeIdentity } from '../../../src/operator/backup/archive/identities.ts';
import { checkArchive, readPieces } from '../../../src/operator/backup/archive/open-archive.ts';
import {
  archiveInto,
  check,
  faultOf,
  inChunks,
  type MadeArchive,
  makeArchive,
  membersOf,
  sealBytes,
  type TarMember,
  tarOf,
} from '../../support/age-archives.ts';
import { eventually } from '../../support/eventually.ts';
import { startSilentProxy } from '../../support/silent-proxy.ts';
import { use } from '../../support/use.ts';
import { sql, useWorld } from '../../support/world.ts';

describe('an archive', () => {
  const world = useWorld();
  const proxy = use(startSilentProxy);
  let archive: MadeArchive;

  before(async () => {
    const admin = await world.login(world.acme);
    await admin.post('/api/v1/EntityStatus', { Title: 'Semi;colon, "quotes" \\ and ü\n\\.\n' });
    await withConnection(world.acme.adminUrl, async client => {
      await client.query('create schema "Odd schema/.."');
      await client.query('create table "Odd schema/.."."percent % ü" (id serial, note text)');
      await client.query(
        `insert into "Odd schema/.."."percent % ü" (note) values ('one'), (null), ('')`,
      );
    });
    archive = await makeArchive(world.acme);
  });

  it('an archive has the header, the schema, the tables and the manifest in this order, and says what each table has', async () => {
    const { header, manifest } = await check(archive);

    const members = await membersOf(archive);
    const folders = members.map(({ name }) => name.replace(/\/.*/, ''));
    expect(folders.filter((folder, index) => folder !== folders[index - 1])).to.deep.equal([
      'header.json',
      'schema',
      'data',
      'manifest.json',
    ]);
    expect(manifest.members.map(({ name }) => name)).to.deep.equal(
      members.slice(0, -1).map(({ name }) => name),
    );
    expect(header.tables.map(({ name }) => name)).to.include.members([
      'countries',
      'audit_log',
      'percent % ü',
    ]);
    const odd = manifest.tables.find(({ schema }) => schema === 'Odd schema/..');
    expect(odd?.rows).to.equal(3);
    expect(odd?.pieces[0]).to.match(
      /^data\/\d+-Odd%20schema%2F\.\.\.percent%20%25%20%C3%BC\.1\.csv$/,
    );
    expect(manifest.leftOut.map(({ name }) => name)).to.include('table public.tenant_identity');
  });

  it('tables with the longest names have members that every file system takes as files, each with a name of its own', async () => {
    const longest = 'щ'.repeat(31);
    await withConnection(world.globex.adminUrl, async client => {
      await client.query(`create schema "${longest}"`);
      for (const last of ['x', 'y']) {
        await client.query(`create table "${longest}"."${longest}${last}" ()`);
      }
    });

    const made = await makeArchive(world.globex);

    const { manifest } = await check(made);
    const pieces = manifest.tables
      .filter(({ schema }) => schema === longest)
      .flatMap(table => table.pieces);
    expect(new Set(pieces).size).to.equal(2);
    for (const { name } of await membersOf(made)) {
      expect(Buffer.byteLength(name.split('/').at(-1) ?? '')).to.be.at.most(255);
    }
  });

  it('an archive of ten thousand members is checked to its last one', async () => {
    await withConnection(world.globex.adminUrl, async client => {
      await client.query('create schema many');
      await client.query('create table many.pieces as select generate_series(1, 10000) as id');
    });

    const { manifest } = await check(await makeArchive(world.globex, { pieceBytes: 1 }));

    expect(manifest.members.length).to.be.above(10_000);
  });

  it('each recipient of an archive opens it, and nobody else does', async () => {
    const [one, two, stranger] = [await makeIdentity(), await makeIdentity(), await makeIdentity()];
    const made = await makeArchive(world.acme, { recipients: [one.recipient, two.recipient] });

    expect(await faultOf({ ...made, identity: one })).to.equal(undefined);
    expect(await faultOf({ ...made, identity: two })).to.equal(undefined);
    expect(await faultOf({ ...made, identity: stranger })).to.equal('sealed');
  });

  it('every flipped byte and every cut of an archive is found', async () => {
    const { bytes } = archive;
    const places = [
      ...Array(400).keys(),
      ...Array.from({ length: 200 }, (_, index) => bytes.length - 1 - index),
    ];
    for (let at = 400; at < bytes.length; at += 997) {
      places.push(at);
    }

    for (const at of places) {
      const changed = Buffer.from(bytes);
      changed.writeUInt8(bytes.readUInt8(at) ^ (1 << (at % 8)), at);
      expect(await faultOf(archive, changed), `byte ${at}`).to.be.oneOf(['damaged', 'sealed']);
      expect(await faultOf(archive, bytes.subarray(0, at)), `cut at ${at}`).to.be.oneOf([
        'damaged',
        'sealed',
      ]);
    }
    expect(await faultOf(archive, Buffer.concat([bytes, Buffer.alloc(1)]))).to.equal('damaged');
  });

  it('a tar that is correctly sealed, but has other members than were written, is refused', async () => {
    const members = await membersOf(archive);
    const [header, page, ...rest] = members as [TarMember, TarMember, ...TarMember[]];
    const [manifest, last, ...pieces] = rest.toReversed() as [TarMember, TarMember, ...TarMember[]];
    const tar = await tarOf(members);
    const evil = { name: '../../etc/passwd', content: Buffer.from('evil') };
    const variants: Record<string, Buffer> = {
      empty: Buffer.alloc(0),
      'without a member': await tarOf([]),
      'without a manifest': await tarOf(members.slice(0, -1)),
      'the manifest alone': await tarOf([manifest]),
      'without a piece': await tarOf([header, page, ...pieces.toReversed(), manifest]),
      'the pieces in another order': await tarOf([
        header,
        page,
        last,
        ...pieces.toReversed(),
        manifest,
      ]),
      'the manifest before the pieces': await tarOf([
        header,
        page,
        manifest,
        ...pieces.toReversed(),
        last,
      ]),
      'the header at the end': await tarOf([page, ...rest, header]),
      'a piece twice': await tarOf([...members.slice(0, -1), last, manifest]),
      'something after the manifest': await tarOf([...members, evil]),
      'a name that leaves the folder': await tarOf([header, evil, page, ...rest]),
      'an absolute name': await tarOf([header, { ...evil, name: '/etc/passwd' }, page, ...rest]),
      'a link': await tarOf([
        header,
        { ...page, type: 'symlink', content: Buffer.from('/etc/passwd') },
        ...rest,
      ]),
      'a changed page': await tarOf([
        header,
        { ...page, content: Buffer.from('drop table countries;') },
        ...rest,
      ]),
      'cut within a piece': tar.subarray(0, tar.length / 2),
      'cut within a header': tar.subarray(0, 100),
    };

    for (const [name, bytes] of Object.entries(variants)) {
      expect(await faultOf(archive, await sealBytes(bytes, archive.identity)), name).to.equal(
        'damaged',
      );
    }
    expect(await faultOf(archive, await sealBytes(tar, archive.identity))).to.equal(undefined);
    expect(await faultOf(archive, Buffer.alloc(0))).to.equal('damaged');
    expect(await faultOf(archive, tar)).to.equal('damaged');
  });

  it('an archive that a stranger has sealed, that was renamed, or is of another installation, is refused', async () => {
    const { expected, identity } = archive;
    const members = await membersOf(archive);
    const manifest = JSON.parse(members.at(-1)?.content.toString() ?? '');
    const { mac, ...unsigned } = manifest;
    const forge = async (document: object): Promise<Buffer> => {
      const content = Buffer.from(`${JSON.stringify(document, null, 1)}\n`);
      return sealBytes(
        await tarOf([...members.slice(0, -1), { name: 'manifest.json', content }]),
        identity,
      );
    };

    expect(mac).to.match(/^[0-9a-f]{64}$/);
    expect(await faultOf(archive, await forge(manifest))).to.equal(undefined);
    expect(await faultOf(archive, await forge(unsigned)), 'no code').to.equal('forged');
    expect(
      await faultOf(archive, await forge({ ...unsigned, mac: '0'.repeat(64) })),
      'wrong code',
    ).to.equal('forged');
    expect(await faultOf(archive, await forge({ ...manifest, leftOut: [] })), 'changed').to.equal(
      'forged',
    );
    expect(await faultOf(archive, await forge({ ...manifest, mac: [mac] })), 'no text').to.equal(
      'forged',
    );
    expect(await faultOf({ ...archive, macKey: Buffer.alloc(32) }), 'another key').to.equal(
      'forged',
    );

    const others = {
      'another tenant': { ...expected, tenant: world.globex.guid },
      'the control database': { ...expected, kind: 'control' as const, tenant: null },
      'another installation': { ...expected, installation: randomUUID() },
      'another name': { ...expected, name: expected.name.replace('2026', '2027') },
    };
    for (const [name, other] of Object.entries(others)) {
      expect(await faultOf({ ...archive, expected: other }), name).to.equal('foreign');
    }

    const keys = { identities: [identity.identity], macKeys: undefined };
    const forged = await forge(unsigned);
    const bounds = boundsOf(null, forged.length, undefined);
    const taken = await checkArchive(inChunks(forged), expected, keys, bounds);
    expect(taken.manifest.mac).to.equal(undefined);
  });

  it('a piece of an object that was replaced after the check is never returned', async () => {
    const found = await check(archive);
    // It is sealed once more below, which may take some bytes more.
    const checked = { ...found, bytes: { ...found.bytes, size: found.bytes.size + 10_000 } };
    const members = await membersOf(archive);
    const first = members.findIndex(({ name }) => name.startsWith('data/'));
    const replace = (content: Buffer) =>
      members.map((member, at) => (at === first ? { ...member, content } : member));
    const read = async (changed: readonly TarMember[]) => {
      const bytes = await sealBytes(await tarOf(changed), archive.identity);
      return Array.fromAsync(
        readPieces(inChunks(bytes), [archive.identity.identity], checked),
      ).then(
        pieces => pieces.length,
        (error: Error) => error.message,
      );
    };

    expect(await read(members)).to.equal(
      checked.manifest.members.filter(({ name }) => name.startsWith('data/')).length,
    );
    const same = Buffer.from(members[first]?.content ?? '');
    same.writeUInt8(0x20, 0);
    expect(await read(replace(same))).to.equal('it was replaced while it was read');
    expect(await read(replace(Buffer.alloc(1_000_000)))).to.equal(
      'it unpacks to more bytes than were written',
    );
    expect(await read(members.slice(0, first))).to.equal('it was replaced while it was read');
  });

  it('an archive of the database of another tenant is refused', async () => {
    const broken = { ...world.acme, guid: randomUUID() };
    const error = await makeArchive(broken).catch((reason: Error) => reason);
    expect((error as Error).message).to.include('belongs to another tenant');
  });

  it('an archive whose database ends before the first byte is read ends with that error, and has no bytes', async () => {
    // The first table, which is read as soon as the schema has been written.
    await sql(world.acme, 'create table "A table" as select 1 as id');
    const copy = proxy.hold(world.acme.database, packet => packet.includes('copy '));
    const started = Promise.withResolvers<Readable>();

    const ended = write(body => {
      started.resolve(body);
      return new Promise<never>(() => {});
    });
    const body = await started.promise;
    await eventually(() => copy.isHolding);
    proxy.cut();

    expect(await ended).to.equal('Connection terminated unexpectedly');
    expect(await buffer(body).catch(reasonOf)).to.be.a('string');
  });

  it('an archive whose reader fails before it reads a byte ends with the error of the reader', async () => {
    const ended = await write(async body => {
      body.destroy();
      await nextTurn();
      throw new Error('the disk is full');
    });

    expect(ended).to.equal('the disk is full');
  });

  /** Archives acme, and returns the message of the error with which that ends. */
  const write = (writer: (body: Readable) => Promise<never>): Promise<string> =>
    archiveInto(
      { ...world.acme, adminUrl: proxy.through(world.acme.adminUrl) },
      {
        macKey: archive.macKey,
        installation: randomUUID(),
        recipients: [archive.identity.recipient],
      },
      writer,
    ).then(() => 'none', reasonOf);

  const reasonOf = (error: Error): string => error.message;
});
