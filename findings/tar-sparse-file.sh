#!/usr/bin/env bash
# Guess: tar and tar-stream of npm read a sparse file of an archive of GNU tar in the POSIX format, or refuse it.
# Found: Both read a file GNUSparseFile.N/disk.img whose bytes begin with the map of the holes; tarfile of Python reads the file.
. "$(dirname "$0")/support.sh"

use_npm tar@7.5.23 tar-stream@3.2.2
tar --version | head -1
mkdir data
truncate --size=1M data/disk.img
printf 'end' >> data/disk.img
tar --create --format=posix --sparse --hole-detection=raw --file=disk.tar data/disk.img
cat > run.js <<'JS'
import { createReadStream, mkdirSync, readdirSync, statSync } from 'node:fs';
import { buffer } from 'node:stream/consumers';
import * as tar from 'tar';
import { extract } from 'tar-stream';

const plain = name => name.replace(/\d+/, 'N');
mkdirSync('out', { recursive: true });
await tar.extract({ file: 'disk.tar', cwd: 'out' });
for (const entry of readdirSync('out', { recursive: true, withFileTypes: true })) {
  if (entry.isFile()) console.log('tar', plain(`${entry.parentPath}/${entry.name}`), statSync(`${entry.parentPath}/${entry.name}`).size);
}
const entries = createReadStream('disk.tar').pipe(extract());
for await (const entry of entries) console.log('tar-stream', plain(entry.header.name), (await buffer(entry)).length);
JS
print_all() {
  stat --format='packed %n %s' data/disk.img
  node run.js
  python3 -c 'import tarfile; print(*[("tarfile", m.name, len(tarfile.open("disk.tar").extractfile(m.name).read())) for m in tarfile.open("disk.tar")][0])'
}
expect print_all <<'OUT'
packed data/disk.img 1048579
tar out/data/GNUSparseFile.N/disk.img 515
tar-stream data/GNUSparseFile.N/disk.img 515
tarfile data/disk.img 1048579
OUT
